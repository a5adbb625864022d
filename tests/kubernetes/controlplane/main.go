// SPDX-License-Identifier: Apache-2.0

// One program with all of a Kubernetes cluster but its container runtime: etcd, the API server, the controller manager, the
// scheduler, the kubelet, kube-proxy, CoreDNS, and what keeps NetworkPolicies. The first argument says which.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

var parts = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllermanager.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kube-proxy":              proxy.NewProxyCommand,
	"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
}

func main() {
	name := ""
	if len(os.Args) > 1 {
		os.Args = os.Args[1:]
		name = os.Args[0]
	}
	switch {
	case parts[name] != nil:
		os.Exit(cli.Run(parts[name]()))
	case name == "etcd":
		etcdmain.Main(os.Args)
	case name == "coredns":
		dnsserver.Directives = []string{"errors", "ready", "cache", "kubernetes"}
		coremain.Run()
	case name == "policies":
		os.Exit(runPolicies(os.Args[1:]))
	default:
		fmt.Fprintln(os.Stderr, "the first argument must be etcd, coredns, policies, kubelet or kube-*")
		os.Exit(2)
	}
}
