# Which tests are built. A test is named as ctest names it: core.parker, durable.slots.file, model.ring.
#
# CI builds all tests once. Its other builds each take one set: the tests that the compiler, sanitizer or
# machine of that build can break in another way than the first. Each test carries its sets as labels.

set(BIDE_TEST_SET all CACHE STRING "The tests to build: all, or a set of tests/sets.cmake")
set(BIDE_TESTS ".*" CACHE STRING "Of these, the tests whose whole name matches this regex")

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
    "parallel[.](fork_join|parallel_for)" "durable[.](locks|slots[.]file)" "model[.]example"
)
# What shares memory between threads.
set(
    bide_race_tests
    "core[.](async_op.*|callback.*|ev.*|futex|lock.*|parker|ready.*|res.*|spin|thread.*|timer.*|waiter_t.*)"
    "(sync|task|sched|stream|parallel)[.].*" "channel[.][^e].*" # element types share nothing
    "durable[.](acquire_all|leader_election|locks|lost_reply|rate_limiter|slots[.]memory|stress|wake_socket)"
    "interop[.](asio|foreign.*|senders)" "stress[.].*"
)
# What ends: coroutines, waiters, payloads, groups.
set(
    bide_lifetime_tests
    "core[.](async_op.*|callback.*|res.*|timer.*|waiter.*)"
    "(sync|channel|task|sched|stream|parallel)[.].*"
    "durable[.](locks|record_json|slots[.](memory|file|redis))" "interop[.](asio|foreign.*|senders)" "stress[.].*"
)
# What has the most temporaries in co_await expressions, which g++ 12 destroys twice.
set(bide_temporaries_tests core[.]async_op_destroy task[.]compose sync[.]semaphore_cancel "interop[.](foreign.*|senders)")
# What depends on the processor: atomics, frames, stack switches.
set(
    bide_machine_tests
    "core[.](async_op.*|event.*|futex|lock.*|parker|ready.*|res.*|thread.*|timer.*|waiter.*)"
    "sync[.](ev|mu|sem|sh).*" "channel[.]ring" "task[.]task" "sched[.](fork_deque|idle|run_queue)"
    "durable[.](record|slots[.]file_crash)" "model[.](misuse|parker)"
)

# Whether the test is built, and the names of its sets.
function(bide_choose name wanted sets)
    set(of "")
    foreach(set IN ITEMS optimiser compiler race lifetime temporaries machine)
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
    endif()
    set(${wanted} ${chosen} PARENT_SCOPE)
    set(${sets} ${of} PARENT_SCOPE)
endfunction()
if(NOT BIDE_TEST_SET MATCHES "^(all|optimiser|compiler|race|lifetime|temporaries|machine)$")
    message(FATAL_ERROR "BIDE_TEST_SET is \"${BIDE_TEST_SET}\", which is no set of tests/sets.cmake")
endif()
