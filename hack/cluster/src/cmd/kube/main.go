// Command kube is a control plane in one executable: etcd, kube-apiserver, kube-controller-manager and kubectl.
// It acts as the one whose name it was started by (through a link), or whose name is its first argument. It holds
// nothing that runs Pods.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
)

// Each value runs the program to its end and gives the exit status. os.Args is that program's own when it is called.
var programs = map[string]func() int{
	"etcd":                    func() int { etcdmain.Main(os.Args); return 0 },
	"kube-apiserver":          func() int { return cli.Run(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func() int { return cli.Run(controllermanager.NewControllerManagerCommand()) },
	"kubectl":                 runKubectl,
}

// kubectl prints its own errors, so the runner that would print them a second time is not the one to use.
func runKubectl() int {
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		return 1
	}
	return 0
}

func main() {
	program, found := programs[filepath.Base(os.Args[0])]
	if !found && len(os.Args) > 1 {
		if program, found = programs[os.Args[1]]; found {
			os.Args = os.Args[1:]
		}
	}
	if !found {
		names := make([]string, 0, len(programs))
		for name := range programs {
			names = append(names, name)
		}
		slices.Sort(names)
		fmt.Fprintf(os.Stderr, "usage: kube %s [ARGUMENT...]\n", strings.Join(names, "|"))
		os.Exit(2)
	}
	os.Exit(program())
}
