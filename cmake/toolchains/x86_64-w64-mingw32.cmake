# Windows from a Linux host, with Debian's MinGW; programs are linked statically and run under Wine. That
# checks what they do on Wine's WaitOnAddress, not on that of Windows.

set(CMAKE_SYSTEM_NAME Windows)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
set(CMAKE_CXX_COMPILER x86_64-w64-mingw32-g++-posix)
set(CMAKE_EXE_LINKER_FLAGS_INIT -static)
find_program(bide_wine NAMES wine64 wine PATHS /usr/lib/wine)
mark_as_advanced(bide_wine)
set(CMAKE_CROSSCOMPILING_EMULATOR ${bide_wine})

set(CMAKE_FIND_ROOT_PATH /usr/x86_64-w64-mingw32)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
