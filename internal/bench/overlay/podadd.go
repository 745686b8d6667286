package overlay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"

	"github.com/culvert-net/culvert/internal/api/culvertv1/culvertv1connect"
	"github.com/culvert-net/culvert/internal/bench/node"
)

// addPods adds all pods, one after the other, and deletes them: what each took from
// the start of the plugin, and what of that the agent took.
func (c *cluster) addPods(ctx context.Context, programs string) (plugin, agent timed, err error) {
	dir, err := os.MkdirTemp("", "culvert-bench-")
	if err != nil {
		return plugin, agent, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	// The plugin calls the agent through a proxy, which measures how long the agent takes.
	socket := filepath.Join(dir, "agent.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return plugin, agent, err
	}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: "culvert"})
	proxy.Transport = node.Transport(c.network.Socket(agentNode))
	var mu sync.Mutex
	var took []time.Duration
	server := &http.Server{Handler: http.HandlerFunc(func(to http.ResponseWriter, ask *http.Request) {
		begun := time.Now()
		proxy.ServeHTTP(to, ask)
		if ask.URL.Path == culvertv1connect.PodsAddPodProcedure {
			mu.Lock()
			defer mu.Unlock()
			took = append(took, time.Since(begun))
		}
	})}
	go func() { _ = server.Serve(listener) }() // until it is closed
	defer func() { err = errors.Join(err, server.Close()) }()
	network, err := json.Marshal(map[string]any{"cniVersion": "1.0.0", "name": "culvert", "type": cniPlugin, "socket": socket})
	if err != nil {
		return plugin, agent, err
	}
	err = c.during(&agent, func() error {
		for i := range c.pods {
			took, err := c.call(ctx, "ADD", programs, network, i)
			if err != nil {
				return err
			}
			plugin.took = append(plugin.took, took)
		}
		return nil
	})
	for i := range c.pods {
		if _, err2 := c.call(ctx, "DEL", programs, network, i); err2 != nil {
			err = errors.Join(err, err2)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if agent.took = took; err == nil && len(agent.took) != len(plugin.took) {
		err = fmt.Errorf("the agent was asked %d times for %d pods", len(agent.took), len(plugin.took))
	}
	return plugin, agent, err
}

const cniPlugin = "culvert-cni"

// call starts the plugin as a container runtime does.
func (c *cluster) call(ctx context.Context, command, programs string, network []byte, pod int) (took time.Duration, err error) {
	namespace := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), c.pods[pod].Fd()) // for whoever may look into this process
	args := &invoke.Args{Command: command, ContainerID: fmt.Sprintf("bench-%d", pod), NetNS: namespace, IfName: podInterface, Path: programs,
		PluginArgsStr: fmt.Sprintf("IgnoreUnknown=1;K8S_POD_NAMESPACE=bench;K8S_POD_NAME=pod-%d", pod)}
	plugin := filepath.Join(programs, cniPlugin)
	err = c.network.Do(agentNode, func() error { // the plugin is started by this thread
		begun := time.Now()
		var err error
		if command == "ADD" {
			_, err = invoke.ExecPluginWithResult(ctx, plugin, network, args, nil)
		} else {
			err = invoke.ExecPluginWithoutResult(ctx, plugin, network, args, nil)
		}
		took = time.Since(begun)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("CNI %s of pod %d: %w", command, pod, err)
	}
	return took, nil
}
