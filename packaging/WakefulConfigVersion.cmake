# SPDX-License-Identifier: MIT OR Apache-2.0
# Whoever asks for this version or an older one of the same ABI gets it; a first number is one ABI.
set(PACKAGE_VERSION "@VERSION@")
string(REGEX MATCH "^[0-9]+" _wakeful_major "${PACKAGE_VERSION}")
if(NOT PACKAGE_FIND_VERSION VERSION_GREATER PACKAGE_VERSION
    AND (NOT PACKAGE_FIND_VERSION_MAJOR OR PACKAGE_FIND_VERSION_MAJOR STREQUAL _wakeful_major))
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
  if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)
    set(PACKAGE_VERSION_EXACT TRUE)
  endif()
endif()
unset(_wakeful_major)
