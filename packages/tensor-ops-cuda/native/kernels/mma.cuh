// Products of small matrices by the tensor cores. Of compute capability 8.0.
//
// A warp computes sums += a b, of a with 16 rows and K columns and b with K rows and 8 columns. Of
// lane l, i being 0 or 1 and w = l % 4:
//
//     a.x, a.y    rows l / 4 and l / 4 + 8, the w-th 4 bytes of the first K / 2 columns
//     a.z, a.w    the same of the other K / 2 columns
//     b.x, b.y    column l / 4, the w-th 4 bytes of the first K / 2 rows and of the others
//     sums[i]     row l / 4, column 2 w + i
//     sums[2 + i] row l / 4 + 8, column 2 w + i
//
// In 4 bytes the element of the lower column, or row, comes first (PTX ISA, "Matrix Fragments for
// mma.m16n8k16 with floating point type" and those for mma.m16n8k32). All lanes of the warp execute
// the same mma; anything else is undefined ("mma").
#pragma once

#include "kernels/device.cuh"

namespace tensor_ops {

#ifdef __CUDACC__

// Multiplies int8; K is 32. Exact: sums that exceed 32 bits wrap around.
DEVICE void mma_s8(int (&sums)[4], uint4 a, uint2 b) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b.x), "r"(b.y));
}

// Multiplies float16 and bfloat16; K is 16. Products are exact, and their sums are cut off, as
// emulation/mma.cpp says. The GPU decides how many are added before, by nothing else than the
// operands.
DEVICE void mma_f16(float (&sums)[4], uint4 a, uint2 b) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b.x), "r"(b.y));
}
DEVICE void mma_bf16(float (&sums)[4], uint4 a, uint2 b) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b.x), "r"(b.y));
}

#else

// The line is the caller's: lanes that are at different products are an error.
inline void mma_s8(int (&sums)[4], uint4 a, uint2 b, int line = __builtin_LINE()) {
  emulation::mma_s8(sums, a, b, line);
}
inline void mma_f16(float (&sums)[4], uint4 a, uint2 b, int line = __builtin_LINE()) {
  emulation::mma_f16(sums, a, b, line);
}
inline void mma_bf16(float (&sums)[4], uint4 a, uint2 b, int line = __builtin_LINE()) {
  emulation::mma_bf16(sums, a, b, line);
}

#endif

}  // namespace tensor_ops
