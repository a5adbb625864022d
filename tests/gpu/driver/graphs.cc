// SPDX-License-Identifier: Apache-2.0
// CUDA graphs, in which XLA puts programs of several kernels. The nodes of a graph run one after
// the other, in the order in which they were added; a node can only wait for nodes that were added
// before it.
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "driver.h"

FAIRWAY_EXPORT int cuMemsetD8Async(uint64_t to, unsigned char value, size_t count, void* stream);
FAIRWAY_EXPORT int cuMemsetD16Async(uint64_t to, uint16_t value, size_t count, void* stream);
FAIRWAY_EXPORT int cuMemsetD32Async(uint64_t to, unsigned value, size_t count, void* stream);

namespace fairway_driver {
namespace {

// Puts a node's work into a stream.
using Work = std::function<int(void* stream)>;

// The driver's numbers.
enum Kind : int { kKernel = 0, kCopy = 1, kFill = 2, kChild = 4, kEmpty = 5 };

struct Node {
  int kind;
  Work work;
};

struct Graph {
  std::vector<std::unique_ptr<Node>> nodes;
};

// A graph made ready for launches. A node's work can be replaced; the graph's node names it.
struct Executable {
  std::vector<const Node*> order;
  std::map<const Node*, Work> work;
};

// The beginning of CUDA_KERNEL_NODE_PARAMS; CUDA_MEMCPY3D; CUDA_MEMSET_NODE_PARAMS.
struct KernelNode {
  void* function;
};
struct CopyEnd {
  size_t x, y, z, level;
  int memory_type;
  void* host;
  DevicePointer device;
  void* array;
  void* reserved;
  size_t pitch, height;
};
struct CopyNode {
  CopyEnd from, to;
  size_t width, height, depth;
};
struct FillNode {
  DevicePointer to;
  size_t pitch;
  unsigned value, element_bytes;
  size_t width, height;
};

Work WorkOf(const KernelNode& node) {
  return [kernel = node.function](void* stream) { return Launch(stream, kernel); };
}

// XLA copies and fills a single row, from its beginning.
Work WorkOf(const CopyNode& node) {
  return
      [node](void* stream) { return Copy(stream, node.to.device, node.from.device, node.width); };
}

Work WorkOf(const FillNode& node) {
  return [node](void* stream) {
    if (node.element_bytes == 1) return cuMemsetD8Async(node.to, node.value, node.width, stream);
    if (node.element_bytes == 2) return cuMemsetD16Async(node.to, node.value, node.width, stream);
    return cuMemsetD32Async(node.to, node.value, node.width, stream);
  };
}

// The work of the graph as it is now.
Work WorkOf(const Graph& graph) {
  std::vector<Work> all;
  for (const auto& node : graph.nodes) all.push_back(node->work);
  return [all](void* stream) {
    int result = kOk;
    for (const Work& work : all) {
      if (result == kOk) result = work(stream);
    }
    return result;
  };
}

// CUgraphNodeParams: the parameters of a node of any kind. No work: the kind is left out here.
struct AnyNode {
  int kind;
  int reserved[3];
  union {
    KernelNode kernel;
    struct {
      int flags, reserved;
      void* context;
      CopyNode copy;
    } copying;
    FillNode fill;
    const Graph* child;
  };
};

Work WorkOf(const AnyNode& node) {
  switch (node.kind) {
    case kKernel:
      return WorkOf(node.kernel);
    case kCopy:
      return WorkOf(node.copying.copy);
    case kFill:
      return WorkOf(node.fill);
    case kChild:
      return WorkOf(*node.child);
    case kEmpty:
      return [](void*) { return kOk; };
    default:
      Note("missing kind of node " + std::to_string(node.kind));
      return nullptr;
  }
}

int Add(void** node, void* graph, int kind, Work work) {
  if (work == nullptr) return kNotSupported;
  auto& nodes = static_cast<Graph*>(graph)->nodes;
  nodes.push_back(std::make_unique<Node>(kind, std::move(work)));
  return Give(node, nodes.back().get());
}

int Replace(void* executable, void* node, Work work) {
  static_cast<Executable*>(executable)->work[static_cast<Node*>(node)] = std::move(work);
  return kOk;
}

}  // namespace
}  // namespace fairway_driver

using namespace fairway_driver;

FAIRWAY_EXPORT int cuGraphCreate(void** graph, unsigned) { return Give(graph, new Graph()); }
FAIRWAY_EXPORT int cuGraphDestroy(void* graph) {
  delete static_cast<Graph*>(graph);
  return kOk;
}
FAIRWAY_EXPORT int cuGraphAddNode_v2(void** node, void* graph, void**, const void*, size_t,
                                     const AnyNode* what) {
  return Add(node, graph, what->kind, WorkOf(*what));
}
FAIRWAY_EXPORT int cuGraphNodeGetType(void* node, int* kind) {
  return Give(kind, static_cast<Node*>(node)->kind);
}
FAIRWAY_EXPORT int cuGraphAddMemcpyNode(void** node, void* graph, void**, size_t,
                                        const CopyNode* what, void*) {
  return Add(node, graph, kCopy, WorkOf(*what));
}

FAIRWAY_EXPORT int cuGraphInstantiateWithFlags(void** executable, void* graph, uint64_t) {
  auto* made = new Executable();
  for (const auto& node : static_cast<Graph*>(graph)->nodes) {
    made->order.push_back(node.get());
    made->work[node.get()] = node->work;
  }
  *executable = made;
  return State();
}
FAIRWAY_EXPORT int cuGraphExecDestroy(void* executable) {
  delete static_cast<Executable*>(executable);
  return kOk;
}
FAIRWAY_EXPORT int cuGraphExecNodeSetParams(void* executable, void* node, const AnyNode* what) {
  return Replace(executable, node, WorkOf(*what));
}
FAIRWAY_EXPORT int cuGraphExecKernelNodeSetParams_v2(void* executable, void* node,
                                                     const KernelNode* what) {
  return Replace(executable, node, WorkOf(*what));
}
FAIRWAY_EXPORT int cuGraphExecMemcpyNodeSetParams(void* executable, void* node,
                                                  const CopyNode* what, void*) {
  return Replace(executable, node, WorkOf(*what));
}
FAIRWAY_EXPORT int cuGraphLaunch(void* executable, void* stream) {
  const auto* launched = static_cast<Executable*>(executable);
  Note("give graph " + std::to_string(launched->order.size()) + " " + StreamOf(stream).name());
  for (const Node* node : launched->order) {
    const int given = launched->work.at(node)(stream);
    if (given != kOk) return given;
  }
  return State();
}
