// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <vector>

#include "gpu/dynamic_library.hpp"

namespace upcie::gpu {

/// A function of a vendor's library, found by name at run time. Its table looks it up.
struct TableEntry {
    TableEntry(std::vector<TableEntry*>& table, const char* its_name, int since_version)
        : name{its_name}, since{since_version} {
        table.push_back(this);
    }
    TableEntry(const TableEntry&) = delete;
    TableEntry& operator=(const TableEntry&) = delete;

    const char* name;
    int since; ///< version that brought it, in the vendor's way of counting
    void* address = nullptr;
};

template <class Signature>
struct TableFunction;
template <class Answer, class... Arguments>
struct TableFunction<Answer(Arguments...)> : TableEntry {
    using TableEntry::TableEntry;
    [[nodiscard]] explicit operator bool() const noexcept { return address != nullptr; }
#if defined(__clang__)
    // The vendor's opaque types have names of their own there, which a sanitizer takes for another function.
    __attribute__((no_sanitize("function")))
#endif
    Answer
    operator()(Arguments... arguments) const {
        return reinterpret_cast<Answer (*)(Arguments...)>(address)(arguments...);
    }
};

inline void look_up(const std::vector<TableEntry*>& table, const DynamicLibrary& library) {
    for (TableEntry* const entry : table) {
        entry->address = library.symbol(entry->name);
    }
}

} // namespace upcie::gpu
