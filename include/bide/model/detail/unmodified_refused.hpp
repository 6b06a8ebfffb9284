// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_DETAIL_UNMODIFIED_REFUSED_HPP
#define BIDE_MODEL_DETAIL_UNMODIFIED_REFUSED_HPP

// Functions of the system that block, order threads or differ from run to run, and that are not
// modelled: see model/unmodified.hpp. If a body calls one, the execution fails and names the
// function. The declarations here have other types than those of the system, so the functions have
// other names here. Each has at most six arguments, and these are integers or pointers.

#include <bide/model/detail/unmodified_calls.hpp>

#define BIDE_MODEL_REFUSED(name)                                                                   \
    extern "C" long bide_model_refused_##name(long, long, long, long, long, long) __asm__(#name);  \
    extern "C" long bide_model_refused_##name(long a, long b, long c, long d, long e, long f) {    \
        using namespace bide::model::detail;                                                       \
        static constinit system_function<long> system(#name);                                      \
        if (ops::in_body()) {                                                                      \
            ops::refuse(#name "()", BIDE_MODEL_HERE);                                              \
        }                                                                                          \
        return system(a, b, c, d, e, f);                                                           \
    }

// Threads.
BIDE_MODEL_REFUSED(pthread_cancel)
BIDE_MODEL_REFUSED(pthread_clockjoin_np)
BIDE_MODEL_REFUSED(pthread_exit)
BIDE_MODEL_REFUSED(pthread_getaffinity_np)
BIDE_MODEL_REFUSED(pthread_getattr_np)
BIDE_MODEL_REFUSED(pthread_getcpuclockid)
BIDE_MODEL_REFUSED(pthread_getname_np)
BIDE_MODEL_REFUSED(pthread_getschedparam)
BIDE_MODEL_REFUSED(pthread_kill)
BIDE_MODEL_REFUSED(pthread_mutex_consistent)
BIDE_MODEL_REFUSED(pthread_mutex_setprioceiling)
BIDE_MODEL_REFUSED(pthread_setschedparam)
BIDE_MODEL_REFUSED(pthread_setschedprio)
BIDE_MODEL_REFUSED(pthread_sigqueue)
BIDE_MODEL_REFUSED(pthread_timedjoin_np)
BIDE_MODEL_REFUSED(pthread_tryjoin_np)
// The threads of C.
BIDE_MODEL_REFUSED(call_once)
BIDE_MODEL_REFUSED(cnd_broadcast)
BIDE_MODEL_REFUSED(cnd_signal)
BIDE_MODEL_REFUSED(cnd_timedwait)
BIDE_MODEL_REFUSED(cnd_wait)
BIDE_MODEL_REFUSED(mtx_lock)
BIDE_MODEL_REFUSED(mtx_timedlock)
BIDE_MODEL_REFUSED(mtx_trylock)
BIDE_MODEL_REFUSED(mtx_unlock)
BIDE_MODEL_REFUSED(thrd_create)
BIDE_MODEL_REFUSED(thrd_current)
BIDE_MODEL_REFUSED(thrd_detach)
BIDE_MODEL_REFUSED(thrd_exit)
BIDE_MODEL_REFUSED(thrd_join)
BIDE_MODEL_REFUSED(thrd_sleep)
BIDE_MODEL_REFUSED(tss_get)
BIDE_MODEL_REFUSED(tss_set)
// Semaphores, message queues, and what else a thread waits for.
BIDE_MODEL_REFUSED(accept)
BIDE_MODEL_REFUSED(accept4)
BIDE_MODEL_REFUSED(connect)
BIDE_MODEL_REFUSED(epoll_pwait)
BIDE_MODEL_REFUSED(epoll_wait)
BIDE_MODEL_REFUSED(flock)
BIDE_MODEL_REFUSED(lockf)
BIDE_MODEL_REFUSED(mq_receive)
BIDE_MODEL_REFUSED(mq_send)
BIDE_MODEL_REFUSED(mq_timedreceive)
BIDE_MODEL_REFUSED(mq_timedsend)
BIDE_MODEL_REFUSED(msgrcv)
BIDE_MODEL_REFUSED(msgsnd)
BIDE_MODEL_REFUSED(pause)
BIDE_MODEL_REFUSED(poll)
BIDE_MODEL_REFUSED(ppoll)
BIDE_MODEL_REFUSED(pselect)
BIDE_MODEL_REFUSED(recv)
BIDE_MODEL_REFUSED(recvfrom)
BIDE_MODEL_REFUSED(recvmmsg)
BIDE_MODEL_REFUSED(recvmsg)
BIDE_MODEL_REFUSED(select)
BIDE_MODEL_REFUSED(sem_clockwait)
BIDE_MODEL_REFUSED(sem_post)
BIDE_MODEL_REFUSED(sem_timedwait)
BIDE_MODEL_REFUSED(sem_trywait)
BIDE_MODEL_REFUSED(sem_wait)
BIDE_MODEL_REFUSED(semop)
BIDE_MODEL_REFUSED(semtimedop)
BIDE_MODEL_REFUSED(sigsuspend)
BIDE_MODEL_REFUSED(sigtimedwait)
BIDE_MODEL_REFUSED(sigwait)
BIDE_MODEL_REFUSED(sigwaitinfo)
BIDE_MODEL_REFUSED(wait)
BIDE_MODEL_REFUSED(wait3)
BIDE_MODEL_REFUSED(wait4)
BIDE_MODEL_REFUSED(waitid)
BIDE_MODEL_REFUSED(waitpid)
// Other processes, and random numbers.
BIDE_MODEL_REFUSED(arc4random)
BIDE_MODEL_REFUSED(arc4random_buf)
BIDE_MODEL_REFUSED(fork)
BIDE_MODEL_REFUSED(getentropy)
BIDE_MODEL_REFUSED(getrandom)
BIDE_MODEL_REFUSED(popen)
BIDE_MODEL_REFUSED(posix_spawn)
BIDE_MODEL_REFUSED(posix_spawnp)
BIDE_MODEL_REFUSED(rand)
BIDE_MODEL_REFUSED(random)
BIDE_MODEL_REFUSED(system)

#undef BIDE_MODEL_REFUSED

#endif
