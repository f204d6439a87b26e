// An operator that every architecture has.
__global__ void relu(float *values, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count && values[i] < 0) values[i] = 0;
}

void tiny_relu(float *values, int count) { relu<<<(count + 255) / 256, 256>>>(values, count); }
