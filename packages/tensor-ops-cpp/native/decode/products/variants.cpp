#include "decode/products/variants.h"

#include <atomic>
#include <cerrno>
#include <cstring>

#include "decode/products/product.h"
#include "isa/isa.h"

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#elif defined(__aarch64__) && defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include <windows.h>
#endif

namespace tensor_ops {
namespace {

// Whether the CPU has what a variant needs beyond its level. AVX10 needs no variant of its own:
// CPUs that have it say too that they have AVX-512 with VNNI and BF16.
#if defined(__x86_64__)

bool is_from_intel() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  __get_cpuid(0, &eax, &ebx, &ecx, &edx);
  return ebx == signature_INTEL_ebx && edx == signature_INTEL_edx && ecx == signature_INTEL_ecx;
}

// The family of a processor of AMD's; 0 of others.
unsigned amd_family() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  __get_cpuid(0, &eax, &ebx, &ecx, &edx);
  if (ebx != signature_AMD_ebx || edx != signature_AMD_edx || ecx != signature_AMD_ecx) return 0;
  __get_cpuid(1, &eax, &ebx, &ecx, &edx);
  const unsigned family = eax >> 8 & 0xF;
  return family < 0xF ? family : family + (eax >> 20 & 0xFF);
}

[[maybe_unused]] bool has_x86_64_v3_vnni() {
#if defined(TENSOR_OPS_EMULATE_DOTS)
  return true;
#else
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx);
  return eax >> 4 & 1;  // AVX_VNNI
#endif
}

[[maybe_unused]] bool has_x86_64_v4_vnni() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx);
  return ecx >> 11 & 1;  // AVX512_VNNI
}

[[maybe_unused]] bool has_x86_64_v4_bf16() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx);
  return (eax >> 5 & 1) && has_x86_64_v4_vnni();  // AVX512_BF16
}

constexpr char kLevelOfTiles[] = "x86-64-v4";

// Why the processor or the system has no tiles to ask for; null where they have.
const char* tiles_missing() {
#if defined(TENSOR_OPS_EMULATE_TILES)
  return has_x86_64_v4_bf16() ? nullptr : "this build emulates tiles beside AVX512_BF16 only";
#elif defined(__linux__)
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx);
  const bool has_bfloat16 = edx >> 22 & 1, has_int8 = (edx >> 24 & 3) == 3;
  if (!has_bfloat16 || !has_int8 || !has_x86_64_v4_bf16()) return "this processor has none";
  unsigned low = 0, high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low >> 17 & 3) == 3 ? nullptr : "this system does not save the registers of tiles";
#else
  return "they are used on Linux only";
#endif
}

bool tiles_are_turned_off() { return environment_switch("TENSOR_OPS_CPP_AMX") == Switch::kOff; }

std::atomic<bool> asked_for_tiles{false};

// A process has to ask for the memory of tiles, once; all its threads may use them then. Returns
// why it was refused, or null. Once it was granted, the system refuses signal stacks that have no
// room for tiles; where a thread has such a stack already, it is not granted.
const char* ask_for_tiles() {
  asked_for_tiles = true;
#if defined(__linux__) && !defined(TENSOR_OPS_EMULATE_TILES)
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  static const int error = syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0 ? 0 : errno;
  if (error == ENOSPC) return "the signal stack of a thread has no room for them";
  if (error != 0) return "the system refused this process the memory for them";
#endif
  return nullptr;
}

[[maybe_unused]] bool has_x86_64_v4_amx() { return !tiles_missing(); }
[[maybe_unused]] bool may_use_x86_64_v4_amx(bool asks) {
  if (tiles_are_turned_off()) return false;
  return (!asks && !asked_for_tiles) || !ask_for_tiles();
}

// On Intel's processors the instruction takes two cycles: with it a product takes longer than in
// float32.
[[maybe_unused]] bool may_use_x86_64_v4_bf16(bool) { return !is_from_intel(); }

[[maybe_unused]] bool may_use_x86_64_v3_vnni(bool) { return true; }
[[maybe_unused]] bool may_use_x86_64_v4_vnni(bool) { return true; }

#elif defined(__aarch64__)

#if defined(__linux__)

// Bits by number, since the headers of older systems do not name all of them.
bool has_dot_products() { return getauxval(AT_HWCAP) >> 20 & 1; }
bool has_int8_matrices() { return getauxval(AT_HWCAP2) >> 13 & 1; }
bool has_bfloat16() { return getauxval(AT_HWCAP2) >> 14 & 1; }

#elif defined(__APPLE__)

bool has_feature(const char* name) {
  int value = 0;
  std::size_t size = sizeof value;
  return sysctlbyname(name, &value, &size, nullptr, 0) == 0 && value != 0;
}
// macOS 11 does not know the names.
#if defined(__ARM_FEATURE_DOTPROD)
bool has_dot_products() { return true; }
#else
bool has_dot_products() { return has_feature("hw.optional.arm.FEAT_DotProd"); }
#endif
bool has_int8_matrices() { return has_feature("hw.optional.arm.FEAT_I8MM"); }
bool has_bfloat16() { return has_feature("hw.optional.arm.FEAT_BF16"); }

#elif defined(_WIN32)

// PF_ARM_V82_DP_, PF_ARM_V82_I8MM_ and PF_ARM_V86_BF16_INSTRUCTIONS_AVAILABLE, by number, since the
// headers of MinGW do not name all of them.
bool has_dot_products() { return IsProcessorFeaturePresent(43); }
bool has_int8_matrices() { return IsProcessorFeaturePresent(66); }
bool has_bfloat16() { return IsProcessorFeaturePresent(68); }

#else

bool has_dot_products() { return false; }
bool has_int8_matrices() { return false; }
bool has_bfloat16() { return false; }

#endif

[[maybe_unused]] bool has_neon_dotprod() { return has_dot_products(); }
[[maybe_unused]] bool has_neon_i8mm() { return has_neon_dotprod() && has_int8_matrices(); }
[[maybe_unused]] bool has_neon_bf16() { return has_neon_i8mm() && has_bfloat16(); }

[[maybe_unused]] bool may_use_neon_dotprod(bool) { return true; }
[[maybe_unused]] bool may_use_neon_i8mm(bool) { return true; }
[[maybe_unused]] bool may_use_neon_bf16(bool) { return true; }

#endif

// The level whose name a variant's name begins with.
[[maybe_unused]] std::size_t level_of(const char* variant) {
  const std::string name(variant, std::strcspn(variant, "+"));
  std::size_t level = 0;
  while (compiled_levels()[level].name != name) ++level;
  return level;
}

std::vector<ProductVariant> compiled_variants() {
  const auto& levels = compiled_levels();
  std::vector<ProductVariant> all;
  for (std::size_t level = 0; level < levels.size(); ++level)
    all.push_back({levels[level].name, level, levels[level].cpu_has(), [](bool) { return true; }});
#define TENSOR_OPS_ADD_VARIANT(_, variant, name)                     \
  {                                                                  \
    const std::size_t level = level_of(name);                        \
    const bool cpu_has = levels[level].cpu_has() && has_##variant(); \
    all.push_back({name, level, cpu_has, may_use_##variant});        \
  }
  TENSOR_OPS_OTHER_VARIANTS(TENSOR_OPS_ADD_VARIANT, TENSOR_OPS_ADD_VARIANT, TENSOR_OPS_ADD_VARIANT,
                            TENSOR_OPS_ADD_VARIANT, )
#undef TENSOR_OPS_ADD_VARIANT
  return all;
}

}  // namespace

#if defined(__x86_64__)

// AMD's processors with AVX-512 have four pipes for vectors, two of which multiply; Intel's have
// two, which do both.
bool adds_beside_multiplies() {
  static const bool does = [] {
    const Switch wanted = environment_switch("TENSOR_OPS_CPP_WINOGRAD");
    return wanted == Switch::kDefault ? amd_family() > 0 : wanted == Switch::kOn;
  }();
  return does;
}

// Zen 4 prefetches the stream of tiles by itself, and worse where a program prefetches far ahead.
// Zen 5 reads faster where a program does, and faster still where those lines bypass its second and
// third cache: a line that is read once would evict others there.
Prefetching prefetching_of_one() {
  constexpr unsigned kZen5 = 0x1A;
  static const Prefetching how =
      amd_family() >= kZen5 ? Prefetching{6144, true} : Prefetching{256, false};
  return how;
}

#else

Prefetching prefetching_of_one() { return {256, false}; }

#endif

const std::vector<ProductVariant>& product_variants() {
  static const std::vector<ProductVariant> variants = compiled_variants();
  return variants;
}

std::size_t fastest_product_variant(std::size_t level, bool asks) {
  const auto& variants = product_variants();
  std::size_t fastest = level;
  for (std::size_t i = level; i < variants.size(); ++i)
    if (variants[i].level == level && variants[i].cpu_has && variants[i].may_use(asks)) fastest = i;
  return fastest;
}

std::string use_of_tiles() {
#if defined(__x86_64__) && !defined(TENSOR_OPS_WITHOUT_x86_64_v4_amx)
  if (!isa_choice().reason.empty() ||
      std::strcmp(compiled_levels()[isa_choice().index].name, kLevelOfTiles) != 0)
    return std::string("no: they go with the level ") + kLevelOfTiles;
  if (tiles_are_turned_off()) return "no: TENSOR_OPS_CPP_AMX is 0";
  if (const char* missing = tiles_missing()) return std::string("no: ") + missing;
  if (!asked_for_tiles) return "yes: the first program asks the system for them";
  if (const char* refused = ask_for_tiles()) return std::string("no: ") + refused;
  return "yes";
#else
  return "no: this build has no products for them";
#endif
}

const ProductKernel& product_kernel(const WeightFormat& format, ActivationType activations,
                                    std::size_t variant) {
  const std::size_t level = product_variants()[variant].level;
  for (;; --variant) {
    if (product_variants()[variant].level != level) continue;
    const ProductTable* table = format.products[variant];
    const ProductKernel* kernel =
        table ? &table->of[static_cast<std::size_t>(activations)] : nullptr;
    if (variant == level || (kernel && kernel->multiply)) return *kernel;
  }
}

}  // namespace tensor_ops
