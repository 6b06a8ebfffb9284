#ifndef BIDE_TESTS_DURABLE_HEADER_ONLY_PART_HPP
#define BIDE_TESTS_DURABLE_HEADER_ONLY_PART_HPP

#include <bide/durable/locks.hpp>
#include <bide/durable/slots/sqlite.hpp>

#include <support/standard.hpp>

namespace header_only_part {

bide::durable_mutex lock_on(const std::string& path);
std::optional<bide::durable_guard> try_to_acquire(bide::durable_mutex& lock);
bool uses_every_part();
std::error_code sqlite_error();
const std::error_category& sqlite_category();

} // namespace header_only_part

#endif
