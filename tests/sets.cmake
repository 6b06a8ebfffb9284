# Which tests are built. A test is named as ctest names it: core.parker, durable.slots.file, model.ring. Each
# test carries its sets as labels.
#
# `quick` and `smoke` are for people: an answer in minutes. CI builds all tests once. Its other builds each take
# one set: the tests that the compiler, sanitizer or machine of that build can break in another way than the first.

set(BIDE_TEST_SET all CACHE STRING "The tests to build: all, or a set of tests/sets.cmake")
set(BIDE_TESTS ".*" CACHE STRING "Of these, the tests whose whole name matches this regex")

# A few of each room, for the first minute after a change.
set(
    bide_smoke_tests
    core[.]parker core[.]waiter_queue core[.]timer sync[.]semaphore sync[.]mutex sync[.]event
    channel[.]channel channel[.]select channel[.]watch task[.]task task[.]compose stream[.]stream
    sched[.]scheduler sched[.]run_loop sched[.]task_group parallel[.]fork_join parallel[.]parallel_for
    durable[.]slots[.]memory test[.]scheduler model[.]semaphore
)
# What proves the library in minutes: unit tests of every room, each promise of the README, examples, short models.
set(
    bide_quick_tests
    "(sync|stream)[.].*" "core[.]([^dfhw].*|deadline|futex|wait[^_].*|wait_status|waker)"
    "channel[.]([^cefs].*|channel(_[cs].*)?|select(_s.*)?|s[lu].*)" "io[.][^u].*"
    "task[.]([^cfrst].*|cancel_reason|compose|frame_memory|task(_[^l].*)?|this_task)"
    "sched[.]([bfij].*|run_(loop|queue)|scheduler.*|spawn_options|task_(group|runner))"
    "parallel[.](async_fork|fork_.*|parallel_(for|reduce|pipeline)|spread|task_graph)"
    "test[.]scheduler.*" interop[.]foreign_coroutines
    "durable[.](parts|record|record_random|slots[.](memory|file)|locks)"
    "model[.](semaphore|mutex|gate|ring|channel|event_count|parker|waiter|idle|run_queue|litmus)" "lint([.](selftest|module))?"
    "example[.]([0-9].*|dupes|glib_loop|guide|readme_umbrella|words)" "package[.](install|find_package)"
)
# What an optimiser can break: waits, wakes and their timing.
set(
    bide_optimiser_tests
    "sync[.].*" "core[.](event_count|futex|parker|thread_wait|timer|waiter)"
    "channel[.](channel|select_cancel)" "parallel[.]parallel_reduce" "durable[.]stress" "stress[.].*"
)
# What an older compiler can refuse or misread: templates, coroutines, temporaries.
set(
    bide_compiler_tests
    "sync[.].*" "channel[.](handles|select)" "task[.](compose|task)" "sched[.]scheduler"
    "parallel[.](fork_join|parallel_for)" "durable[.](locks|slots[.]file)" "model[.](example|unmodified)"
)
# What shares memory between threads.
set(
    bide_race_tests
    "core[.](async_op.*|callback.*|ev.*|futex|lock.*|parker|ready.*|res.*|spin|thread.*|timer.*|waiter_t.*)"
    "(sync|task|io|sched|stream|parallel)[.].*" "channel[.][^e].*" # element types share nothing
    "durable[.](acquire_all|leader_election|locks|lost_reply|rate_limiter|slots[.]memory|stress|wake_socket)"
    "interop[.](asio|foreign.*|senders|std_execution)" "stress[.].*"
)
# What ends: coroutines, waiters, payloads, groups.
set(
    bide_lifetime_tests
    "core[.](async_op.*|callback.*|res.*|timer.*|waiter.*)"
    "(sync|channel|task|io|sched|stream|parallel)[.].*"
    "durable[.](locks|record_json|slots[.](memory|file|redis))" "interop[.](asio|foreign.*|senders)" "stress[.].*"
)
# What has the most temporaries in co_await expressions, which g++ 12 destroys twice.
set(
    bide_temporaries_tests
    core[.]async_op_destroy task[.]compose sync[.]semaphore_cancel "interop[.](foreign.*|senders)"
)
# What depends on the processor: atomics, frames, stack switches.
set(
    bide_machine_tests
    "core[.](async_op.*|event.*|futex|lock.*|parker|ready.*|res.*|thread.*|timer.*|waiter.*)"
    "sync[.](ev|mu|sem|sh|wa).*" "channel[.]ring" "task[.]task" "sched[.](fork_deque|idle|run_queue)"
    "durable[.](record|slots[.]file_crash)" "model[.](misuse|parker)"
)

# Whether the test is built, and the names of its sets.
function(bide_choose name wanted sets)
    set(of "")
    foreach(set IN LISTS bide_test_sets)
        foreach(pattern IN LISTS bide_${set}_tests)
            if(name MATCHES "^(${pattern})$")
                list(APPEND of ${set})
                break()
            endif()
        endforeach()
    endforeach()
    set(chosen FALSE)
    if((BIDE_TEST_SET STREQUAL "all" OR BIDE_TEST_SET IN_LIST of) AND name MATCHES "^(${BIDE_TESTS})$")
        set(chosen TRUE)
    else()
        set_property(GLOBAL APPEND PROPERTY bide_tests_left_out ${name})
    endif()
    set(${wanted} ${chosen} PARENT_SCOPE)
    set(${sets} ${of} PARENT_SCOPE)
endfunction()

# bide_add_test(<name> LABEL <label> COMMAND <command>... [PROPERTIES <property> <value>...]): a test that is
# no program of its own, if it is wanted.
function(bide_add_test name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" LABEL "COMMAND;PROPERTIES")
    bide_choose(${name} wanted sets)
    if(wanted)
        add_test(NAME ${name} COMMAND ${arg_COMMAND})
        set_tests_properties(${name} PROPERTIES LABELS "${arg_LABEL};${sets}" ${arg_PROPERTIES})
    endif()
endfunction()

# Writes left_out.txt, which cmake/test.cmake prints: the tests by room, and the promises that no test holds.
function(bide_write_left_out)
    get_property(names GLOBAL PROPERTY bide_tests_left_out)
    list(TRANSFORM names REPLACE "[.].*" "" OUTPUT_VARIABLE rooms)
    set(all_rooms ${rooms})
    list(REMOVE_DUPLICATES rooms)
    set(text "")
    foreach(room IN LISTS rooms)
        set(of ${all_rooms})
        list(FILTER of INCLUDE REGEX "^${room}$")
        list(LENGTH of number)
        list(APPEND text "${number} of ${room}")
    endforeach()
    list(JOIN text ", " text)

    # What the first page of the README promises.
    set(
        needed
        fifo-waiters no-overtaking grant-stays giving-up-passes-on stop-resumes-elsewhere resume-in-release
        channel-capacity unsent-returns select-one-case when-ends-after-children no-wait-allocates out-of-memory
        durable-exclusion
    )
    get_property(files GLOBAL PROPERTY bide_chosen_files)
    set(held "")
    foreach(file IN LISTS files)
        file(READ ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/${file} source)
        string(REGEX MATCHALL "promise[.][a-z-]+" labels "${source}")
        list(APPEND held ${labels})
    endforeach()
    foreach(label IN LISTS needed)
        if(BIDE_TEST_SET STREQUAL "quick" AND BIDE_TESTS STREQUAL ".*" AND NOT "promise.${label}" IN_LIST held)
            message(FATAL_ERROR "tests/sets.cmake: no test of the set quick has the label promise.${label}")
        endif()
    endforeach()
    list(REMOVE_DUPLICATES held)
    list(LENGTH held number)
    file(READ ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/README.md readme)
    string(REGEX REPLACE ".*\n## What is promised" "" readme "${readme}")
    string(REGEX MATCHALL " `[a-z-]+` [|]\n" rows "${readme}")
    list(LENGTH rows all)
    if(text)
        file(CONFIGURE OUTPUT left_out.txt CONTENT "${text}; ${number} promises of ${all} are checked\n" @ONLY)
    else()
        file(REMOVE ${CMAKE_CURRENT_BINARY_DIR}/left_out.txt)
    endif()
endfunction()

set(bide_test_sets smoke quick optimiser compiler race lifetime temporaries machine)
if(NOT BIDE_TEST_SET STREQUAL "all" AND NOT BIDE_TEST_SET IN_LIST bide_test_sets)
    message(FATAL_ERROR "BIDE_TEST_SET is \"${BIDE_TEST_SET}\", which is no set of tests/sets.cmake")
endif()
