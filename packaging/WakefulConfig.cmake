# SPDX-License-Identifier: MIT OR Apache-2.0
# find_package(Wakeful), then target_link_libraries(program Wakeful::wakeful), or Wakeful::static.
# By its real place: where /lib is a link to /usr/lib, CMake may have come by the link.
get_filename_component(_wakeful_prefix "${CMAKE_CURRENT_LIST_DIR}" REALPATH)
get_filename_component(_wakeful_prefix "${_wakeful_prefix}/@UP@" ABSOLUTE)
set(_wakeful_libdir "${_wakeful_prefix}/@LIBDIR@")
include(CMakeFindDependencyMacro)
find_dependency(Threads)

if(NOT TARGET Wakeful::wakeful)
  add_library(Wakeful::wakeful SHARED IMPORTED)
  set_target_properties(Wakeful::wakeful PROPERTIES
    IMPORTED_LOCATION "${_wakeful_libdir}/libwakeful.so.1"
    IMPORTED_SONAME "libwakeful.so.1"
    INTERFACE_INCLUDE_DIRECTORIES "${_wakeful_prefix}/include"
    INTERFACE_LINK_LIBRARIES Threads::Threads)
  add_library(Wakeful::static STATIC IMPORTED)
  set_target_properties(Wakeful::static PROPERTIES
    IMPORTED_LOCATION "${_wakeful_libdir}/libwakeful.a"
    INTERFACE_INCLUDE_DIRECTORIES "${_wakeful_prefix}/include"
    INTERFACE_LINK_LIBRARIES "Threads::Threads;gcc_s;m")
endif()
unset(_wakeful_prefix)
unset(_wakeful_libdir)
