#ifndef BIDE_PROGRAMS_BIDE_LOCK_DESCRIPTOR_HPP
#define BIDE_PROGRAMS_BIDE_LOCK_DESCRIPTOR_HPP

// A lock that a descriptor of the calling shell holds, as with flock(1). The descriptor is open on the
// lock's .bide.lock file. The mark of the grant is a lock of that open file, which the shell and
// bide-lock share. So the grant lasts until the last process has closed it.

#include "admin.hpp"
#include "command_line.hpp"

#include <bide/durable/options.hpp>

namespace lock_parts {

// Sets slot and name from the file that the descriptor has open.
inline void parser::find_descriptor() {
    const auto refuse = [this](const std::string& why) {
        throw failure{EX_NOINPUT, std::to_string(o.descriptor) + ": " + printable(why)};
    };
    if (has_slot_)
        fail("a descriptor names the lock; --slot does, too");
    if (o.is_leased)
        fail("--lease: the descriptor holds the lock");
    char path[PATH_MAX];
    const std::string link = "/proc/self/fd/" + std::to_string(o.descriptor);
    const auto size = ::readlink(link.c_str(), path, sizeof path);
    if (size < 0)
        refuse(::fcntl(o.descriptor, F_GETFD) < 0 ? "the descriptor is not open"
                                                  : "the descriptor's path is not known: no /proc");
    std::string file(path, static_cast<std::size_t>(size));
    struct stat facts{};
    constexpr std::string_view end = ".bide.lock";
    const bool is_file = ::fstat(o.descriptor, &facts) == 0 && S_ISREG(facts.st_mode);
    if (is_file && facts.st_nlink == 0)
        refuse("its file was deleted: " + file);
    if (!is_file || !file.ends_with(end) || facts.st_size > 8)
        refuse("open on " + file + ", which is not the file of a lock" +
               (is_file && !file.ends_with(end) ? "; try " + file + std::string(end) : ""));
    if ((::fcntl(o.descriptor, F_GETFL) & O_ACCMODE) == O_RDONLY)
        refuse("open it for writing: " + std::to_string(o.descriptor) + ">> " + file);
    file.resize(file.size() - end.size());
    split(file);
    if (!is_name(o.name))
        refuse("not a name for a lock: " + o.name);
    if (o.holder.empty()) // bide-lock ends soon; its caller has the descriptor
        o.holder = bide::durable::this_host() + ":" + std::to_string(::getppid());
}

class descriptor_lock {
public:
    explicit descriptor_lock(const administration& by) : by_(by), o_(by.o) {}

    // acquire(): returns a guard, or throws.
    template <class Acquire> int take(Acquire acquire) {
        if (const auto mine = find()) {
            if (mine->weight != o_.weight)
                throw failure{EX_CONFIG, o_.name + ": the descriptor holds the lock with another "
                                                   "--weight; unlock it first"};
            return print(mine->fence, mine->lane);
        }
        try {
            auto held = acquire();
            const auto fence = held.fence(), lane = held.lane();
            by_.checked(held.hand_over());
            return print(fence, lane);
        } catch (...) {
            drop_marks();
            throw;
        }
    }

    int release() {
        if (const auto mine = find()) {
            bide::durable_ticket t;
            t.holder_id = mine->holder_id;
            t.nonce = mine->nonce;
            t.weight = mine->weight;
            t.fence = mine->fence;
            by_.ask([&lock = by_.lock, t] { return lock.release(t); });
            if (o_.verbose)
                complain(o_.name + ": released");
        }
        drop_marks();
        if (o_.json)
            std::puts(one_line({{"name", o_.name}, {"fence", nullptr}}).c_str());
        return 0;
    }

private:
    // The grant that the descriptor holds.
    std::optional<bide::durable::holder> find() {
        const auto seen = by_.look();
        const bide::file_slot slot(file_of(o_));
        if (seen)
            for (const auto& h : seen->live.holders)
                if (h.from.pid == 0 && slot.has_mark(o_.descriptor, h.from.mark))
                    return h;
        return std::nullopt;
    }

    void drop_marks() {
#if defined(F_OFD_SETLK)
        struct flock all{};
        all.l_type = F_UNLCK;
        all.l_whence = SEEK_SET;
        ::fcntl(o_.descriptor, F_OFD_SETLK, &all);
#endif
    }

    int print(std::int64_t fence, std::int64_t lane) const {
        if (o_.json)
            std::puts(one_line({{"name", o_.name}, {"fence", fence}, {"lane", lane}}).c_str());
        return 0;
    }

    const administration& by_;
    const options& o_;
};

} // namespace lock_parts

#endif
