// SPDX-License-Identifier: Apache-2.0
#include "controller/daemon/web_pages.h"

#include <arpa/inet.h>

#include <algorithm>
#include <string_view>

#include <absl/strings/ascii.h>
#include <fmt/format.h>

namespace fairway {
namespace {

// The host of "host", "host:port" and "[v6]:port".
std::string_view WithoutPort(std::string_view host) {
  if (host.starts_with('[')) return host.substr(1, host.find(']') - 1);
  return host.substr(0, host.find(':'));
}

bool IsAddress(const std::string& host) {
  in6_addr parsed;
  return ::inet_pton(AF_INET, host.c_str(), &parsed) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), &parsed) == 1;
}

// What a client sent, short enough for a line.
std::string Quoted(std::string_view text) { return fmt::format("'{}'", text.substr(0, 100)); }

}  // namespace

std::string RefusedPage(const HttpRequest& request, const std::vector<std::string>& names) {
  if (!request.site.empty() && request.site != "none" && request.site != "same-origin")
    return fmt::format(
        "a web page of another site asked (Sec-Fetch-Site: {}); only this host's own may",
        Quoted(request.site));
  if (!request.origin.empty() && request.origin != fmt::format("http://{}", request.host))
    return fmt::format("a web page of {} asked; only this host's own may", Quoted(request.origin));
  if (request.host.empty()) return "";
  const std::string host = absl::AsciiStrToLower(std::string(WithoutPort(request.host)));
  const auto is = [&](const std::string& name) { return absl::AsciiStrToLower(name) == host; };
  if (IsAddress(host) || host == "localhost" || std::ranges::any_of(names, is)) return "";
  return fmt::format(
      "this host was asked by the name {}, which it does not know: ask by its IP address, or "
      "start the controller with --http-name={}",
      Quoted(host), host.substr(0, 100));
}

}  // namespace fairway
