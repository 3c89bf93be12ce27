// The sampled choice; kernels/naive/draw.py defines it.
#pragma once

namespace twofold {

struct Filters {
  float sharpness;  // 1 / temperature
  long keep;        // the likeliest so many; 0: all
  double top_p, min_p;
};

// The id at u (0 <= u < 1) of the inverse CDF over what the filters leave of x [n], n > 0, finite, none above peak.
long draw(const float* x, long n, float peak, const Filters& filters, double u);

}  // namespace twofold
