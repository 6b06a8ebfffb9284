# Builds bide-lock with BIDE_INSTALL_LOCK, installs it, and looks at and runs what is installed.

set(build ${WORK}/build)
set(prefix "${WORK}/a prefix")
file(REMOVE_RECURSE ${WORK})
function(run)
    execute_process(COMMAND ${ARGN} OUTPUT_VARIABLE out COMMAND_ERROR_IS_FATAL ANY)
    set(out "${out}" PARENT_SCOPE)
endfunction()
# Without the clients of databases: their slots take long to compile.
run(
    ${CMAKE_COMMAND} -S ${SOURCE} -B ${build} -G ${GENERATOR} -DCMAKE_CXX_COMPILER=${CXX}
    -DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER}
    -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0 -DBIDE_INSTALL_LOCK=ON -DBIDE_BUILD_TESTS=OFF
    -DBIDE_BUILD_EXAMPLES=OFF -DBIDE_BUILD_BENCH=OFF -DCMAKE_DISABLE_FIND_PACKAGE_SQLite3=ON
    -DCMAKE_DISABLE_FIND_PACKAGE_CURL=ON -Dbide_libpq_include=OFF -Dbide_hiredis_include=OFF
)
run(${CMAKE_COMMAND} --build ${build})
run(${CMAKE_COMMAND} --install ${build} --prefix ${prefix})

set(lock ${prefix}/bin/bide-lock)
run(${lock} --version)
if(NOT out MATCHES "^bide-lock [0-9]+[.][0-9]+[.][0-9]+\n$")
    message(FATAL_ERROR "--version: ${out}")
endif()
run(${lock} ${WORK}/nightly ${CMAKE_COMMAND} -E echo done)
if(NOT out STREQUAL "done\n" OR NOT EXISTS ${WORK}/nightly.bide)
    message(FATAL_ERROR "the command said: ${out}")
endif()

# expect(FILE TEXT COMMAND...): the file has the text, and if there is a command, is its output.
function(expect file text)
    file(READ ${prefix}/share/${file} is)
    if(ARGN)
        run(${ARGN})
        if(NOT is STREQUAL out)
            message(FATAL_ERROR "${file} is not what bide-lock prints")
        endif()
    endif()
    string(FIND "${is}" "${text}" at)
    if(at EQUAL -1)
        message(FATAL_ERROR "${file} does not have: ${text}")
    endif()
    foreach(place IN ITEMS ${prefix} ${build} ${SOURCE})
        string(FIND "${is}" "${place}" at)
        if(NOT at EQUAL -1)
            message(FATAL_ERROR "${file} names ${place}")
        endif()
    endforeach()
endfunction()
expect(man/man1/bide-lock.1 ".TH BIDE-LOCK 1")
expect(man/man1/bide-lock.1 ".B \\-n, \\-\\-nonblock")
expect(bash-completion/completions/bide-lock "-F _bide_lock bide-lock\n" ${lock} completion bash)
expect(zsh/site-functions/_bide-lock "#compdef bide-lock\n" ${lock} completion zsh)
expect(fish/vendor_completions.d/bide-lock.fish "complete -c bide-lock " ${lock} completion fish)
