# Levels and variants to compile kernels for: `levels`, and `product_variants` of the decode executor, with the
# compiler's flags_... for each, and `level_definitions`, from which native/isa/levels.h knows them.

# macOS builds for another processor than its own by this list.
set(processor ${CMAKE_SYSTEM_PROCESSOR})
if(APPLE AND CMAKE_OSX_ARCHITECTURES)
  set(processor ${CMAKE_OSX_ARCHITECTURES})
  list(LENGTH CMAKE_OSX_ARCHITECTURES architectures)
  if(architectures GREATER 1)
    message(FATAL_ERROR "tensor-ops-cpp is built for one architecture at a time, not for "
                        "${CMAKE_OSX_ARCHITECTURES}: set ARCHFLAGS to '-arch arm64' or '-arch x86_64'.")
  endif()
endif()

# Emulated instructions can be compiled and run on any processor of the level.
set(emulations "")
foreach(emulation TENSOR_OPS_EMULATE_DOTS TENSOR_OPS_EMULATE_TILES)
  if(${emulation})
    list(APPEND emulations -D${emulation})
  endif()
endforeach()

# The lists of native/isa/levels.h, lowest first, and of native/decode/products/variants.h.
set(all_variants "")
set(variant_names "")
if(processor MATCHES "^(x86_64|AMD64|amd64)$")
  set(all_levels x86_64_v2 x86_64_v3 x86_64_v4)
  set(level_names x86-64-v2 x86-64-v3 x86-64-v4)
  set(flags_x86_64_v2 -march=x86-64-v2)
  set(flags_x86_64_v3 -march=x86-64-v3)
  set(flags_x86_64_v4 -march=x86-64-v4 -mprefer-vector-width=512)
  set(all_variants x86_64_v3_vnni x86_64_v4_vnni x86_64_v4_bf16 x86_64_v4_amx)
  set(variant_names x86-64-v3+vnni x86-64-v4+vnni x86-64-v4+vnni+bf16 x86-64-v4+vnni+bf16+amx)
elseif(processor MATCHES "^(aarch64|arm64|ARM64)$")
  set(all_levels neon)
  set(level_names neon)
  set(all_variants neon_dotprod neon_i8mm neon_bf16)
  set(variant_names neon+dotprod neon+dotprod+i8mm neon+dotprod+i8mm+bf16)
else()
  set(all_levels generic)
  set(level_names generic)
endif()

set(asked_levels ${level_names})
set(asked_variants ${variant_names})
if(TENSOR_OPS_ONE_LEVEL AND TENSOR_OPS_LEVELS)
  message(FATAL_ERROR "TENSOR_OPS_ONE_LEVEL is ON and TENSOR_OPS_LEVELS is '${TENSOR_OPS_LEVELS}': set one of them. "
                      "The first stands for the lowest level.")
elseif(TENSOR_OPS_ONE_LEVEL)
  list(GET level_names 0 asked_levels)
elseif(TENSOR_OPS_LEVELS MATCHES "^(native|recent|runnable)$")
  # The same test as isa.cpp's where the library runs, made where it is built.
  try_run(run_result is_compiled ${CMAKE_CURRENT_BINARY_DIR}/machine_levels
          ${CMAKE_CURRENT_SOURCE_DIR}/cmake/machine_levels.cpp
          CMAKE_FLAGS "-DINCLUDE_DIRECTORIES=${CMAKE_CURRENT_SOURCE_DIR}/native;${shared}"
          COMPILE_DEFINITIONS ${emulations} CXX_STANDARD 17 RUN_OUTPUT_VARIABLE machine_has)
  set(asked_levels ${machine_has})
  list(FILTER asked_levels EXCLUDE REGEX "[+]|^$")
  set(asked_variants ${machine_has})
  list(FILTER asked_variants INCLUDE REGEX "[+]")
  if(NOT is_compiled OR NOT run_result EQUAL 0 OR NOT asked_levels)
    message(FATAL_ERROR "TENSOR_OPS_LEVELS is '${TENSOR_OPS_LEVELS}', and this machine does not run what is built for "
                        "${processor} processors. Set it to a list of: ${level_names}")
  endif()
  list(LENGTH asked_levels count)
  if(TENSOR_OPS_LEVELS STREQUAL "native")
    list(GET asked_levels -1 asked_levels)
  elseif(TENSOR_OPS_LEVELS STREQUAL "recent" AND count GREATER 2)
    math(EXPR first "${count} - 2")
    list(SUBLIST asked_levels ${first} 2 asked_levels)
  endif()
elseif(TENSOR_OPS_LEVELS)
  string(REGEX REPLACE "[ ,]+" ";" asked_levels "${TENSOR_OPS_LEVELS}")
endif()
list(JOIN level_names ", " valid_levels)
foreach(name IN LISTS asked_levels)
  if(NOT name IN_LIST level_names)
    message(FATAL_ERROR "TENSOR_OPS_LEVELS is '${TENSOR_OPS_LEVELS}', and '${name}' is not a level of ${processor} "
                        "processors; the valid ones are: ${valid_levels}; or native, recent or runnable, alone")
  endif()
endforeach()
set(levels "")
set(compiled_level_names "")
set(level_definitions "")
foreach(level name IN ZIP_LISTS all_levels level_names)
  if(name IN_LIST asked_levels)
    list(APPEND levels ${level})
    list(APPEND compiled_level_names ${name})
  else()
    list(APPEND level_definitions TENSOR_OPS_WITHOUT_${level})
  endif()
endforeach()

# The products of the decode executor again: native/decode/products/variants.h. A variant that has
# formats_ is compiled for these only.
set(product_variants ${levels})
foreach(variant name IN ZIP_LISTS all_variants variant_names)
  string(REGEX REPLACE "[+].*" "" level_name ${name})
  # The quickest build has none, even if they would extend its only level.
  if(level_name IN_LIST compiled_level_names AND name IN_LIST asked_variants AND NOT TENSOR_OPS_ONE_LEVEL)
    list(APPEND product_variants ${variant})
  else()
    list(APPEND level_definitions TENSOR_OPS_WITHOUT_${variant})
  endif()
endforeach()
file(GLOB integer_formats CONFIGURE_DEPENDS native/decode/products/formats/[mnq]*.cpp
                                            native/decode/products/formats/iq4_nl.cpp
                                            native/decode/products/layouts/*.cpp)
# Formats that only levels pack, since layouts/ has their products.
file(GLOB packed_formats CONFIGURE_DEPENDS native/decode/products/formats/iq[23]_*.cpp
                                           native/decode/products/formats/iq4_xs.cpp
                                           native/decode/products/formats/tq*.cpp)
set(formats_x86_64_v3_vnni ${integer_formats})
set(flags_x86_64_v3_vnni ${flags_x86_64_v3} -DTENSOR_OPS_INTEGERS_ONLY)
if(TENSOR_OPS_EMULATE_DOTS)
  list(APPEND flags_x86_64_v3_vnni -DTENSOR_OPS_EMULATE_DOTS)
else()
  list(APPEND flags_x86_64_v3_vnni -mavxvnni)
endif()
set(formats_x86_64_v4_vnni ${integer_formats} native/decode/products/unpacked/multiply.cpp)
set(flags_x86_64_v4_vnni ${flags_x86_64_v4} -mavx512vnni -DTENSOR_OPS_INTEGERS_ONLY)
set(formats_x86_64_v4_bf16 native/decode/products/formats/bf16.cpp)
set(flags_x86_64_v4_bf16 ${flags_x86_64_v4} -mavx512vnni -mavx512bf16)
set(formats_x86_64_v4_amx ${integer_formats} native/decode/products/formats/bf16.cpp
                          native/decode/products/tile_int8/multiply.cpp)
set(flags_x86_64_v4_amx ${flags_x86_64_v4} -mavx512vnni -mamx-tile -mamx-int8 -DTENSOR_OPS_TILES)
set(flags_neon_dotprod -march=armv8.2-a+dotprod)
set(formats_neon_i8mm ${integer_formats})
set(flags_neon_i8mm ${flags_neon_dotprod}+i8mm -DTENSOR_OPS_MATRIX_INT8)
set(formats_neon_bf16 native/decode/products/formats/bf16.cpp)
set(flags_neon_bf16 ${flags_neon_dotprod}+i8mm+bf16)
