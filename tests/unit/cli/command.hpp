// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sstream>
#include <string>
#include <vector>

#include "commands.hpp"
#include "support/fake_sysfs.hpp"

namespace upcie::cli::test {

/// What one call of the command line answered.
struct Answer {
    int code = -1;
    std::string out;
    std::string err;

    /// The document on standard output; discarded() when it is none.
    [[nodiscard]] Json json() const { return Json::parse(out, nullptr, false); }
    [[nodiscard]] bool says(std::string_view text) const { return (out + err).find(text) != std::string::npos; }
};

inline HostRoots roots_of(const upcie::test::FakeSysfs& fake) {
    HostRoots roots;
    roots.kernel = fake.roots();
    roots.boot = fake.path("boot");
    roots.modules = fake.path("lib/modules");
    roots.loader_cache = fake.path("etc/ld.so.cache");
    roots.library_directories = {fake.path("usr/lib")};
    return roots;
}

inline Answer upcie(const std::vector<std::string>& arguments, const HostRoots& roots = {}) {
    std::vector<const char*> words{"upcie"};
    for (const auto& argument : arguments) {
        words.push_back(argument.c_str());
    }
    std::ostringstream out;
    std::ostringstream err;
    Context context{out, err, os::real_system(), roots, false};
    Answer answer;
    answer.code = run(static_cast<int>(words.size()), words.data(), context);
    answer.out = out.str();
    answer.err = err.str();
    return answer;
}

} // namespace upcie::cli::test
