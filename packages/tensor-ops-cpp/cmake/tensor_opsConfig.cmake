# find_package(tensor_ops CONFIG) has the targets
#
#   tensor_ops::cpp      the C++ backend's library, with its C interface (tensor_ops/abi.h)
#   tensor_ops::backend  the headers of the C++ registry (tensor_ops/backend/backends.h), which loads the backends
#                        that it finds: those beside the C++ backend's library, and more
include(${CMAKE_CURRENT_LIST_DIR}/tensor_opsTargets.cmake)
foreach(component IN LISTS tensor_ops_FIND_COMPONENTS)
  set(tensor_ops_${component}_FOUND FALSE)
  if(TARGET tensor_ops::${component})
    set(tensor_ops_${component}_FOUND TRUE)
  elseif(tensor_ops_FIND_REQUIRED_${component})
    set(tensor_ops_FOUND FALSE)
    set(tensor_ops_NOT_FOUND_MESSAGE "tensor_ops has no component ${component}; it has: backend, cpp")
  endif()
endforeach()
