# The files of a wheel are in one folder, tensor_ops_cpp; those of an install tree are where the system has them.
include(CMakePackageConfigHelpers)
if(TENSOR_OPS_PYTHON)
  set(libraries_to tensor_ops_cpp)
  set(programs_to tensor_ops_cpp)
  set(headers_to tensor_ops_cpp/include)
  set(cmake_to tensor_ops_cpp/cmake)
  set(pkgconfig_to tensor_ops_cpp/pkgconfig)
else()
  include(GNUInstallDirs)
  set(libraries_to ${CMAKE_INSTALL_LIBDIR})
  set(programs_to ${CMAKE_INSTALL_BINDIR})
  set(headers_to ${CMAKE_INSTALL_INCLUDEDIR})
  set(cmake_to ${CMAKE_INSTALL_LIBDIR}/cmake/tensor_ops)
  set(pkgconfig_to ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()

install(TARGETS tensor_ops_cpp tensor_ops_backend
        EXPORT tensor_ops
        LIBRARY DESTINATION ${libraries_to}
        ARCHIVE DESTINATION ${libraries_to}
        RUNTIME DESTINATION ${programs_to}
        INCLUDES DESTINATION ${headers_to})
install(DIRECTORY ${shared}/include/tensor_ops DESTINATION ${headers_to})
install(EXPORT tensor_ops NAMESPACE tensor_ops:: FILE tensor_opsTargets.cmake DESTINATION ${cmake_to})

# Before 1.0 a release may change what programs compile with.
write_basic_package_version_file(tensor_opsConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES cmake/tensor_opsConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/tensor_opsConfigVersion.cmake
        DESTINATION ${cmake_to})

# As seen from the files of pkg-config, so that the whole may be moved.
function(as_seen_from folder target result)
  set(root ${CMAKE_CURRENT_BINARY_DIR}) # any: only the way from one to the other matters
  cmake_path(ABSOLUTE_PATH folder BASE_DIRECTORY ${root})
  cmake_path(ABSOLUTE_PATH target BASE_DIRECTORY ${root} NORMALIZE)
  cmake_path(RELATIVE_PATH target BASE_DIRECTORY ${folder})
  set(${result} ${target} PARENT_SCOPE)
endfunction()
as_seen_from(${pkgconfig_to} ${headers_to} pc_headers)
as_seen_from(${pkgconfig_to} ${libraries_to} pc_libraries)
list(TRANSFORM CMAKE_DL_LIBS PREPEND -l OUTPUT_VARIABLE pc_dl)
foreach(name IN ITEMS tensor-ops tensor-ops-cpp)
  configure_file(cmake/${name}.pc.in ${name}.pc @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${name}.pc DESTINATION ${pkgconfig_to})
endforeach()
