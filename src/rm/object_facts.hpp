// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include <upcie/rm/call.hpp>
#include <upcie/rm/classes.hpp>

namespace upcie::rm {

/// What an allocation's parameters say about the object, as text for people and, for memory, its size.
struct ObjectFacts {
    std::string text;
    std::uint64_t bytes = 0;
};
[[nodiscard]] ObjectFacts allocation_facts(const Call& call, ClassRole role);

} // namespace upcie::rm
