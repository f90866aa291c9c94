#include "isa/isa.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "declaration/errors.h"
#include "isa/levels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace tensor_ops {
namespace {

// A level that is left out of a build is not asked for.
#if defined(__x86_64__)

// Not __builtin_cpu_supports: it does not know the psABI levels on every compiler, and needs a
// runtime library that some toolchains lack.
struct Cpuid {
  std::uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  Cpuid(std::uint32_t leaf, std::uint32_t subleaf) {
    __get_cpuid_count(leaf, subleaf, &eax, &ebx, &ecx, &edx);
  }
};

bool has_bits(std::uint32_t word, std::initializer_list<int> bits) {
  for (int bit : bits)
    if (!(word >> bit & 1)) return false;
  return true;
}

// The register states that the operating system saves; call only where OSXSAVE is set.
std::uint32_t saved_states() {
  std::uint32_t low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

[[maybe_unused]] bool cpu_has_x86_64_v2() {
  // SSE3, SSSE3, CMPXCHG16B, SSE4.1, SSE4.2, POPCNT; LAHF
  return has_bits(Cpuid(1, 0).ecx, {0, 9, 13, 19, 20, 23}) &&
         has_bits(Cpuid(0x80000001, 0).ecx, {0});
}

[[maybe_unused]] bool cpu_has_x86_64_v3() {
  // FMA, MOVBE, OSXSAVE, AVX, F16C; BMI1, AVX2, BMI2; LZCNT
  return cpu_has_x86_64_v2() && has_bits(Cpuid(1, 0).ecx, {12, 22, 27, 28, 29}) &&
         has_bits(Cpuid(7, 0).ebx, {3, 5, 8}) && has_bits(Cpuid(0x80000001, 0).ecx, {5}) &&
         has_bits(saved_states(), {1, 2});
}

[[maybe_unused]] bool cpu_has_x86_64_v4() {
  // AVX512F, AVX512DQ, AVX512CD, AVX512BW, AVX512VL
  return cpu_has_x86_64_v3() && has_bits(Cpuid(7, 0).ebx, {16, 17, 28, 30, 31}) &&
         has_bits(saved_states(), {5, 6, 7});
}

[[maybe_unused]] std::vector<const char*> features_x86_64_v2() { return {"sse4_2"}; }
[[maybe_unused]] std::vector<const char*> features_x86_64_v3() {
  return {"sse4_2", "avx", "avx2", "fma", "f16c"};
}
[[maybe_unused]] std::vector<const char*> features_x86_64_v4() {
  return {"sse4_2", "avx", "avx2", "fma", "f16c", "avx512"};
}

#elif defined(__aarch64__)

bool cpu_has_neon() { return true; }
std::vector<const char*> features_neon() { return {"neon", "fma"}; }

#else

bool cpu_has_generic() { return true; }
std::vector<const char*> features_generic() { return {}; }

#endif

std::string joined_names(bool only_of_cpu) {
  std::string names;
  for (const Level& level : compiled_levels()) {
    if (only_of_cpu && !level.cpu_has()) continue;
    if (!names.empty()) names += ", ";
    names += level.name;
  }
  return names;
}

IsaChoice highest_up_to(std::size_t cap) {
  const auto& levels = compiled_levels();
  for (std::size_t i = cap + 1; i-- > 0;)
    if (levels[i].cpu_has()) return {i, {}};
  return {0, text("this CPU lacks ", levels.front().name,
                  ", the lowest instruction-set level that tensor_ops_cpp is compiled for")};
}

bool is_switch(const char* value) {
  return !value || !*value || !std::strcmp(value, "0") || !std::strcmp(value, "1");
}

IsaChoice choose_level() {
  const auto& levels = compiled_levels();
  for (const char* name : {"TENSOR_OPS_CPP_AMX", "TENSOR_OPS_CPP_WINOGRAD"})
    if (const char* value = std::getenv(name); !is_switch(value))
      return {0, text(name, " is '", value, "', which is neither 0 nor 1")};
  const char* wanted = std::getenv("TENSOR_OPS_CPP_ISA");
  if (!wanted || !*wanted) return highest_up_to(levels.size() - 1);
  for (std::size_t i = 0; i < levels.size(); ++i) {
    if (std::strcmp(levels[i].name, wanted) != 0) continue;
    if (levels[i].cpu_has()) return {i, {}};
    return {0, text("TENSOR_OPS_CPP_ISA is '", wanted,
                    "', which this CPU lacks; it has: ", joined_names(true))};
  }
  return {0, text("TENSOR_OPS_CPP_ISA is '", wanted,
                  "', which is not a level; the valid ones are: ", joined_names(false))};
}

}  // namespace

const std::vector<Level>& compiled_levels() {
#define TENSOR_OPS_LEVEL_ENTRY(_, level, name) {name, cpu_has_##level, features_##level()},
  static const std::vector<Level> levels{TENSOR_OPS_FOR_EACH_LEVEL(TENSOR_OPS_LEVEL_ENTRY, )};
#undef TENSOR_OPS_LEVEL_ENTRY
  return levels;
}

const IsaChoice& isa_choice() {
  static const IsaChoice choice = choose_level();
  return choice;
}

Switch environment_switch(const char* name) {
  const char* const value = std::getenv(name);
  if (!value || !*value || !is_switch(value)) return Switch::kDefault;
  return *value == '1' ? Switch::kOn : Switch::kOff;
}

std::string cpu_brand() {
#if defined(__x86_64__)
  if (Cpuid(0x80000000, 0).eax < 0x80000004) return {};
  char brand[49] = {};
  for (std::uint32_t i = 0; i < 3; ++i) {
    const Cpuid part(0x80000002 + i, 0);
    std::memcpy(brand + 16 * i, &part, 16);
  }
  const std::string padded(brand);
  const std::size_t first = padded.find_first_not_of(' ');
  if (first == std::string::npos) return {};
  return padded.substr(first, padded.find_last_not_of(' ') - first + 1);
#else
  return {};
#endif
}

}  // namespace tensor_ops
