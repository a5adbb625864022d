// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"sync"

	"github.com/cloudnativelabs/kube-router/v2/pkg/controllers/netpol"
	"github.com/cloudnativelabs/kube-router/v2/pkg/healthcheck"
	"github.com/cloudnativelabs/kube-router/v2/pkg/options"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// enforcePolicies keeps the NetworkPolicies of a node, by kube-router's part for that alone: iptables and ipset. The arguments: a
// kubeconfig, the node's name, the range of Services.
func enforcePolicies(kubeconfig, node, services string) error {
	rest, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(rest)
	if err != nil {
		return err
	}
	config := options.NewKubeRouterConfig()
	config.HostnameOverride, config.ClusterIPCIDRs, config.EnableIPv4 = node, []string{services}, true
	stop := make(chan struct{})
	factory := informers.NewSharedInformerFactory(client, 0)
	pods := factory.Core().V1().Pods().Informer()
	namespaces := factory.Core().V1().Namespaces().Informer()
	policies := factory.Networking().V1().NetworkPolicies().Informer()
	factory.Start(stop)
	factory.WaitForCacheSync(stop)
	tables, sets, err := netpol.NewIPTablesHandlers(config)
	if err != nil {
		return err
	}
	controller, err := netpol.NewNetworkPolicyController(client, config, pods, policies, namespaces, &sync.Mutex{}, tables, sets)
	if err != nil {
		return err
	}
	for informer, handler := range map[cache.SharedIndexInformer]cache.ResourceEventHandler{
		pods: controller.PodEventHandler, namespaces: controller.NamespaceEventHandler, policies: controller.NetworkPolicyEventHandler} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return err
		}
	}
	beats := make(chan *healthcheck.ControllerHeartbeat, 10)
	go func() {
		for range beats {
		}
	}()
	var running sync.WaitGroup
	running.Add(1)
	controller.Run(beats, stop, &running)
	return nil
}

func runPolicies(arguments []string) int {
	if len(arguments) != 3 {
		fmt.Fprintln(os.Stderr, "policies takes a kubeconfig, a node's name and the range of Services")
		return 2
	}
	if err := enforcePolicies(arguments[0], arguments[1], arguments[2]); err != nil {
		fmt.Fprintln(os.Stderr, "policies:", err)
		return 1
	}
	return 0
}
