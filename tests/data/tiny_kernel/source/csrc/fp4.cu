// One multiply of NVFP4 matrices with block scales, and what CUTLASS compiles where the target has no such instruction.
// The instruction: https://docs.nvidia.com/cuda/parallel-thread-execution/#warp-level-block-scaling
#include <cstdint>
#include <cstdio>

#if defined(__CUDA_ARCH_FEAT_SM120_ALL) || \
    (defined(__CUDA_ARCH_FAMILY_SPECIFIC__) && __CUDA_ARCH_FAMILY_SPECIFIC__ == 1200)
#define TINY_HAS_FP4 1
#endif

__global__ void fp4_mma(float *out, const uint32_t *a, const uint32_t *b, const uint32_t *scales) {
#ifdef TINY_HAS_FP4
  float d[4] = {0, 0, 0, 0};
  const int lane = threadIdx.x;
  const uint16_t zero = 0;
  asm volatile(
      "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, {%10}, {%11, %11}, {%12}, {%11, %11};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[lane]), "r"(a[lane + 32]), "r"(a[lane + 64]), "r"(a[lane + 96]), "r"(b[lane]), "r"(b[lane + 32]),
        "r"(scales[lane]), "h"(zero), "r"(scales[lane + 32]));
  for (int i = 0; i < 4; ++i) out[4 * lane + i] = d[i];
#else
  printf("ERROR : Arch conditional MMA instruction used without targeting appropriate compute capability. Aborting.\n");
  asm volatile("brkpt;\n");
#endif
}

void tiny_scaled_fp4_mm_sm120(float *out, const uint32_t *a, const uint32_t *b, const uint32_t *scales) {
  fp4_mma<<<1, 32>>>(out, a, b, scales);
}
