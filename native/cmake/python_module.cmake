# _native, the extension module of a package: a client of the library that lies beside it. The package has set
#
#   library           the target of the library, and the folder of both in the wheel
#   module_settings   what else the module is linked with
#
# Where pip asks for the stable ABI (`wheel.py-api` of the package), which it does for CPython 3.12 and newer with a GIL,
# the module keeps to that of 3.12.
find_package(Python 3.11 REQUIRED COMPONENTS Interpreter Development.Module NumPy ${SKBUILD_SABI_COMPONENT})
find_package(nanobind CONFIG REQUIRED)

# Code that uses nanobind is large, and a call of an op runs through little of it.
file(GLOB call_files CONFIGURE_DEPENDS ${shared}/binding/ops/*.cpp ${shared}/binding/python/*.cpp native/arrays/*.cpp
                                       native/python/*.cpp)
set(nanobind_files ${call_files})
list(FILTER nanobind_files INCLUDE REGEX "/binding/ops/module.cpp$|/python/(module|nanobind|arrays|device_array|decode[^/]*).cpp$")
list(REMOVE_ITEM call_files ${nanobind_files})
if(TENSOR_OPS_DECODE)
  file(GLOB decode_binding_files CONFIGURE_DEPENDS ${shared}/binding/decode/*.cpp)
  list(APPEND nanobind_files ${decode_binding_files})
else()
  list(FILTER nanobind_files EXCLUDE REGEX "/python/decode[^/]*$")
endif()
set(python Python::Module)
if(SKBUILD_SABI_COMPONENT)
  set(python Python::SABIModule)
endif()
add_library(${library}_calls OBJECT ${call_files})
target_link_libraries(${library}_calls PRIVATE ${library} ${module_settings} ${python} Python::NumPy)
if(SKBUILD_SABI_COMPONENT)
  target_compile_definitions(${library}_calls PRIVATE Py_LIMITED_API=0x030C0000)
endif()
# Each package has its own domain: the table of types and of what translates exceptions. The flags of the compiler and the
# C++ library are those of the library beside it.
nanobind_add_module(_native STABLE_ABI FREE_THREADED NB_STATIC NB_DOMAIN ${library} NB_SUPPRESS_WARNINGS PROTECT_STACK
                    NOMINSIZE NOSTRIP MUSL_DYNAMIC_LIBCPP ${nanobind_files})
target_link_libraries(_native PRIVATE ${library}_calls ${library} ${module_settings} ${python} Python::NumPy
                                      ${CMAKE_DL_LIBS})
target_compile_definitions(_native PRIVATE TENSOR_OPS_VERSION="${PROJECT_VERSION}")
get_target_property(nanobind_library _native LINK_LIBRARIES)
list(FILTER nanobind_library INCLUDE REGEX "^nanobind")
target_compile_options(${nanobind_library} PRIVATE -w) # its warnings are not ours
if(NOT TENSOR_OPS_SANITIZE AND NOT TENSOR_OPS_CUDA_EMULATION)
  foreach(target IN ITEMS _native ${nanobind_library})
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-Os>)
  endforeach()
endif()
set(beside_it "$ORIGIN")
if(APPLE)
  set(beside_it "@loader_path")
endif()
set_target_properties(_native PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "${beside_it}")
if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
  # Else the standard library's templates are exported, and could be swapped for another module's.
  set(exports ${shared}/cmake/python_module.map)
  target_link_options(_native PRIVATE "LINKER:--version-script=${exports}"
                                      # The library beside it goes before one of LD_LIBRARY_PATH.
                                      "LINKER:--disable-new-dtags")
  set_target_properties(_native PROPERTIES LINK_DEPENDS ${exports})
endif()
install(TARGETS _native LIBRARY DESTINATION ${library})

# SBOM of what else is compiled in, and of what was chosen (PEP 770).
if(SKBUILD_METADATA_DIR AND PROJECT_IS_TOP_LEVEL AND NOT TENSOR_OPS_CUDA_EMULATION)
  get_target_property(robin_map_headers tsl::robin_map INTERFACE_INCLUDE_DIRECTORIES)
  file(STRINGS ${robin_map_headers}/tsl/robin_growth_policy.h robin_map_VERSION REGEX "define TSL_RH_VERSION_M|N_PATCH")
  string(REGEX REPLACE "[^;]*VERSION_[A-Z]+ " "" robin_map_VERSION "${robin_map_VERSION}")
  list(JOIN robin_map_VERSION "." robin_map_VERSION)
  configure_file(native/sbom.cdx.json.in sbom.cdx.json @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/sbom.cdx.json DESTINATION ${SKBUILD_METADATA_DIR}/sboms)
endif()
