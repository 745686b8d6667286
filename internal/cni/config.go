package cni

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"

	pb "github.com/culvert-net/culvert/internal/api/culvertv1"
)

// DefaultSocket is where the agent listens unless the network configuration says
// otherwise: as in the agent's own.
const DefaultSocket = "/run/culvert/culvert.sock"

// configuration is a CNI network configuration.
type configuration struct {
	types.PluginConf
	Socket string `json:"socket"` // of the agent
	// Tenant names the tenant whose network it is; empty: the cluster's own network.
	Tenant string `json:"tenant"`
	// RuntimeConfig is what the runtime adds for the capabilities that the
	// configuration names.
	RuntimeConfig struct {
		// Bandwidth is there for pods that the plugin bandwidth limits.
		Bandwidth map[string]any `json:"bandwidth"`
	} `json:"runtimeConfig"`
	// Valid are types.GCAttachment, which GC must be given: without it all would be
	// none.
	Valid json.RawMessage `json:"cni.dev/valid-attachments"`
	prev  *current.Result
}

// readConfig also reads the result of an earlier ADD, where there is one.
func readConfig(data []byte) (*configuration, error) {
	c := &configuration{}
	if err := json.Unmarshal(data, c); err != nil {
		return nil, types.NewError(types.ErrDecodingFailure, "cannot read the network configuration", err.Error())
	}
	c.Socket = cmp.Or(c.Socket, DefaultSocket)
	if err := version.ParsePrevResult(&c.PluginConf); err != nil {
		return nil, types.NewError(types.ErrDecodingFailure, "cannot read prevResult", err.Error())
	}
	if c.PrevResult == nil {
		return c, nil
	}
	var err error
	if c.prev, err = current.NewResultFromResult(c.PrevResult); err != nil {
		return nil, types.NewError(types.ErrDecodingFailure, "cannot read prevResult", err.Error())
	}
	return c, nil
}

// podArgs are what Kubernetes' runtimes say of a pod (CNI_ARGS).
type podArgs struct {
	types.CommonArgs
	K8S_POD_NAMESPACE types.UnmarshallableString //nolint:revive // CNI's way to name arguments
	K8S_POD_NAME      types.UnmarshallableString //nolint:revive
	K8S_POD_UID       types.UnmarshallableString //nolint:revive
}

// wanted is a request for an attachment: which pod it is for, and what it is
// made of.
type wanted struct {
	attachment *pb.Attachment
	pod        *pb.Pod
	mac        net.HardwareAddr
}

func newWanted(c *configuration, args *skel.CmdArgs) (wanted, error) {
	k := podArgs{CommonArgs: types.CommonArgs{IgnoreUnknown: true}}
	if err := types.LoadArgs(args.Args, &k); err != nil {
		return wanted{}, types.NewError(types.ErrInvalidEnvironmentVariables, "cannot read CNI_ARGS", err.Error())
	}
	sum := sha256.Sum256([]byte(args.ContainerID + "/" + args.IfName))
	w := wanted{
		attachment: &pb.Attachment{ContainerId: args.ContainerID, Interface: args.IfName},
		mac:        net.HardwareAddr(sum[8:14]),
	}
	w.mac[0] = w.mac[0]&0xfc | 0x02 // unicast, locally administered
	w.pod = &pb.Pod{
		Network: c.Name, Netns: args.Netns, Namespace: string(k.K8S_POD_NAMESPACE), Name: string(k.K8S_POD_NAME), Uid: string(k.K8S_POD_UID),
		HostInterface: hostInterface(args.ContainerID, args.IfName), Mac: w.mac.String(),
		Shaped: len(c.RuntimeConfig.Bandwidth) > 0, Tenant: c.Tenant,
	}
	return w, nil
}

// hostInterface names the host's end of an attachment's veth, in the 15
// characters that there are.
func hostInterface(containerID, ifName string) string {
	sum := sha256.Sum256([]byte(containerID + "/" + ifName))
	return fmt.Sprintf("culv%.11s", hex.EncodeToString(sum[:6]))
}
