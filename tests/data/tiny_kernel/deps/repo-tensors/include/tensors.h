#pragma once

struct Tensor {
  void *data;
  int count;
};
