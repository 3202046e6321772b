// SPDX-License-Identifier: BSD-3-Clause
// What the check programs share: a line a check, and a status at the end.
#pragma once

#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include <upcie/result.hpp>

namespace upcie::test {

inline int failures = 0;

inline bool expect(bool good, const std::string& what) {
    fmt::print("{} {}\n", good ? "ok  " : "BAD ", what);
    failures += good ? 0 : 1;
    return good;
}

/// Expects success and hands the value on; without it there is nothing left to check.
template <class T>
T need(Result<T> result, std::string_view what) {
    if (!result) {
        fmt::print("BAD  {}: {}\n", what, result.error().message());
        std::exit(1);
    }
    return std::move(*result);
}

/// Expects an error with this errno whose message has the words.
template <class T>
bool refused(const Result<T>& result, int code, std::string_view words, std::string_view what) {
    const std::string message = result ? "it worked" : result.error().message();
    const bool good = !result && result.error().is(code) && message.find(words) != std::string::npos;
    return expect(good, fmt::format("{}: {}", what, message));
}

} // namespace upcie::test
