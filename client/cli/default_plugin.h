// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_CLIENT_CLI_DEFAULT_PLUGIN_H_
#define FAIRWAY_CLIENT_CLI_DEFAULT_PLUGIN_H_

#include <string>

namespace fairway {

// The plugin in the repository's Python environment, beside this program's build; empty: there is
// none. A wheel's command sets FAIRWAY_PJRT_PLUGIN (client/python/_fairway_command.py).
std::string DefaultPlugin();

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_CLI_DEFAULT_PLUGIN_H_
