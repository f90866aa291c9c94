# tensor_ops::backend: the headers with which a C++ program finds the backends and calls them. It is not linked
# with a library of ours: the registry loads those that it finds.
set(generated ${CMAKE_CURRENT_BINARY_DIR}/include)
set(ops_header ${generated}/tensor_ops/backend/ops.h)
set(make_ops_header ${shared}/cmake/ops_header.cmake)
# The header keeps its time where it does not change; the stamp says that it was looked at.
add_custom_command(
  OUTPUT ops_header.stamp
  BYPRODUCTS ${ops_header}
  COMMAND ${CMAKE_COMMAND} -DDECLARATIONS=${CMAKE_CURRENT_SOURCE_DIR}/native/ops -DHEADER=${ops_header}
          -P ${make_ops_header}
  COMMAND ${CMAKE_COMMAND} -E touch ops_header.stamp
  DEPENDS ${op_files} ${make_ops_header}
  COMMENT "Making tensor_ops/backend/ops.h"
  VERBATIM)
add_custom_target(tensor_ops_headers ALL DEPENDS ops_header.stamp)

add_library(tensor_ops_backend INTERFACE)
add_library(tensor_ops::backend ALIAS tensor_ops_backend)
set_target_properties(tensor_ops_backend PROPERTIES EXPORT_NAME backend)
target_compile_features(tensor_ops_backend INTERFACE cxx_std_17)
target_include_directories(tensor_ops_backend INTERFACE $<BUILD_INTERFACE:${shared}/include>
                                                        $<BUILD_INTERFACE:${generated}>)
target_compile_definitions(tensor_ops_backend
                           INTERFACE TENSOR_OPS_BACKEND_FOLDERS="$<TARGET_FILE_DIR:tensor_ops::cpp>")
target_link_libraries(tensor_ops_backend INTERFACE ${CMAKE_DL_LIBS})
# In a build of another project, the library is there before the program runs.
add_dependencies(tensor_ops_backend tensor_ops_headers tensor_ops_cpp)
if(TARGET tensor_ops_cuda) # beside the other library, where the registry looks
  get_target_property(folder tensor_ops_cpp LIBRARY_OUTPUT_DIRECTORY)
  if(NOT folder)
    set(folder ${CMAKE_CURRENT_BINARY_DIR})
  endif()
  set_target_properties(tensor_ops_cuda PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${folder})
  add_dependencies(tensor_ops_backend tensor_ops_cuda)
endif()
