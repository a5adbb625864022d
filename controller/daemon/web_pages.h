// SPDX-License-Identifier: Apache-2.0
// Keeps web pages of others from asking the HTTP port through the browser of somebody who can reach
// it.
#ifndef FAIRWAY_CONTROLLER_DAEMON_WEB_PAGES_H_
#define FAIRWAY_CONTROLLER_DAEMON_WEB_PAGES_H_

#include <string>
#include <vector>

#include "transport/http_server.h"

namespace fairway {

// Returns why a page's request gets no answer, in one line; "" if it may have one. `names`: names
// and addresses by which this host is asked, besides localhost, loopback addresses and the address
// at which the request came in.
//
// A browser says which page asks: in Origin (RFC 6454), or in Sec-Fetch-Site (W3C Fetch Metadata),
// where "none" is a person at the address bar. A page whose own name was made to point at this host
// (DNS rebinding) is told by its Host. Requests without these headers come from no browser.
std::string RefusedPage(const HttpRequest& request, const std::vector<std::string>& names);

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_DAEMON_WEB_PAGES_H_
