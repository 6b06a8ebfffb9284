#ifndef BIDE_TESTS_SUPPORT_FORKING_HPP
#define BIDE_TESTS_SUPPORT_FORKING_HPP

// What a parallel algorithm forks with where a test decides which thread runs what, and when: one thread, and
// chance that can be repeated.

#include <bide/core/platform.hpp>
#include <bide/parallel/fork_policy.hpp>
#include <support/jitter.hpp>
#include <support/standard.hpp>

namespace test {

// Of each fork one arm runs to its end, and then the other; which is first is chance.
class chance_forks {
public:
    using platform = bide::native_platform;

    struct script {
        explicit script(std::uint32_t seed) : chance(seed) {}
        jitter chance;
        std::uint32_t hunger = 2;  // of four times that it is asked, work is wanted so often
        std::uint32_t thieves = 2; // of four second arms so many run before the first ones
        int forks = 0;             // so far
        int last_fork = 1 << 30;   // there is no memory for more than so many
        const void* thread = this; // the one that runs; a thief has another address
    };

    explicit chance_forks(script& s) noexcept : script_(&s) {}

    template <class F> void enter(F&& f) const { f(); }
    template <std::int64_t, class Brief, class F>
    void enter_loop(std::uint64_t, const Brief&, F&& f) const {
        f();
    }

    template <class F, class G> void both(F&& f, G&& g, bool = false) const {
        if (++script_->forks > script_->last_fork) {
            throw std::bad_alloc();
        }
        std::exception_ptr first;
        std::exception_ptr second;
        const bool is_stolen = script_->chance.below(4) < script_->thieves;
        if (is_stolen) {
            const int thief = 0;
            const void* const owner = std::exchange(script_->thread, &thief);
            second = outcome(g);
            script_->thread = owner;
        }
        first = outcome(f);
        if (!is_stolen) {
            second = outcome(g);
        }
        if (first || second) {
            std::rethrow_exception(first ? first : second);
        }
    }

    bool wants_work(std::uint64_t) const noexcept {
        return script_->chance.below(4) < script_->hunger;
    }
    const void* thread() const noexcept { return script_->thread; }
    bool may_leave() const noexcept { return script_->chance.below(2) == 0; }
    bool leaves_for_task(std::int64_t) const noexcept { return script_->chance.below(4) == 0; }
    unsigned workers() const noexcept { return 4; }

private:
    template <class F> static std::exception_ptr outcome(F& f) {
        try {
            f();
        } catch (...) {
            return std::current_exception();
        }
        return nullptr;
    }

    script* script_;
};

// A policy of such forks.
template <class Forks> class forks_policy {
public:
    explicit forks_policy(Forks with, bide::fork_options options = {})
        : forks_(with), options_(std::move(options)) {}
    Forks forks() const noexcept { return forks_; }
    const bide::fork_options& options() const noexcept { return options_; }

private:
    Forks forks_;
    bide::fork_options options_;
};

inline forks_policy<chance_forks> by_chance(chance_forks::script& script,
                                            const bide::fork_options& options = {}) {
    return forks_policy(chance_forks(script), options);
}

} // namespace test

#endif
