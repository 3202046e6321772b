// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/result.hpp>

#include <cstring>
#include <utility>

#include <fmt/format.h>

namespace upcie {

std::string errno_name(int errno_value) {
    const char* name = strerrorname_np(errno_value);
    return name != nullptr ? std::string{name} : fmt::format("errno {}", errno_value);
}

std::string Error::message() const {
    std::string text = operation;
    if (!subject.empty()) {
        text += " on " + subject;
    }
    switch (domain) {
    case ErrorDomain::system:
        text += fmt::format(": {} ({})", errno_name(code), strerrordesc_np(code) ? strerrordesc_np(code) : "unknown");
        break;
    case ErrorDomain::nvme:
        text += fmt::format(": {} (NVMe status 0x{:04x})", code_name.empty() ? "command failed" : code_name, code);
        break;
    case ErrorDomain::vendor:
        text += fmt::format(": {} ({})", code_name, code);
        break;
    }
    if (!hint.empty()) {
        text += ". " + hint;
    }
    return text;
}

tl::unexpected<Error> fail(int errno_value, std::string operation, std::string subject, std::string hint) {
    Error error;
    error.code = errno_value;
    error.operation = std::move(operation);
    error.subject = std::move(subject);
    error.hint = std::move(hint);
    return tl::unexpected<Error>{std::move(error)};
}

} // namespace upcie
