# The peer that is written in Go (peers/go), which needs nothing but the language's own library.

find_program(BIDE_BENCH_GO go)
mark_as_advanced(BIDE_BENCH_GO)

if(BIDE_BENCH_GO)
    set(sources ${CMAKE_CURRENT_LIST_DIR}/go)
    file(GLOB files CONFIGURE_DEPENDS ${sources}/*.go ${sources}/go.mod)
    set(copy ${CMAKE_CURRENT_BINARY_DIR}/peers/go)
    file(MAKE_DIRECTORY ${copy}) # its cache
    set(program ${copy}/go_bench)
    add_custom_command(
        OUTPUT ${program}
        COMMAND
            ${CMAKE_COMMAND} -E env GOCACHE=${copy}/cache GOFLAGS=-mod=mod GOTOOLCHAIN=local
            ${BIDE_BENCH_GO} build -o ${program} .
        DEPENDS ${files}
        WORKING_DIRECTORY ${sources}
        COMMENT "Building Go's benchmark"
        VERBATIM
    )
    add_custom_target(bench_go_program DEPENDS ${program})
    add_library(bench_go INTERFACE)
    add_dependencies(bench_go bench_go_program)
    target_compile_definitions(bench_go INTERFACE "BIDE_BENCH_GO=\"${program}\"")
endif()
