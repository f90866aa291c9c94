// How the rows of tensors are stored. Written by tools/node_kinds.py:
// change tensor_ops_decode/weights/formats/ and run that instead of changing this file.

#include "decode/program/tensor_type.h"

// clang-format off
namespace tensor_ops::decode {

const std::vector<TensorType>& tensor_types() {
  static const std::vector<TensorType> types{
    {"bf16", 1, 2},
    {"f16", 1, 2},
    {"f32", 1, 4},
    {"f8_e4m3", 64, 68},
    {"iq2_s", 256, 82},
    {"iq2_xs", 256, 74},
    {"iq2_xxs", 256, 66},
    {"iq3_s", 256, 110},
    {"iq3_xxs", 256, 98},
    {"iq4_nl", 32, 18},
    {"iq4_xs", 256, 136},
    {"mxfp4", 32, 17},
    {"nvfp4", 64, 36},
    {"q2_K", 256, 84},
    {"q3_K", 256, 110},
    {"q4_0", 32, 18},
    {"q4_1", 32, 20},
    {"q4_K", 256, 144},
    {"q4_zp", 32, 19},
    {"q5_0", 32, 22},
    {"q5_1", 32, 24},
    {"q5_K", 256, 176},
    {"q6_K", 256, 210},
    {"q8_0", 32, 34},
    {"tq1_0", 256, 54},
    {"tq2_0", 256, 66},
  };
  return types;
}

}  // namespace tensor_ops::decode
