package api

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/agent/isolation"
	"github.com/culvert-net/culvert/internal/agent/pods"
	pb "github.com/culvert-net/culvert/internal/api/culvertv1"
	"github.com/culvert-net/culvert/internal/api/culvertv1/culvertv1connect"
	"github.com/culvert-net/culvert/internal/api/message"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/netpol"
)

// Endpoint says where a daemon is.
type Endpoint struct {
	Socket string // path of the Unix socket, unless Address is set
	// Address is host:port. Beyond loopback the client uses TLS.
	Address   string
	TokenFile string
	CA        string // PEM file of the certificates to trust, in place of the system's
	// ServerName is in the daemon's certificate; the host of Address unless set.
	ServerName string
}

// Client calls a daemon. Its errors are the agent's: config.Errors, or errors that
// wrap one of the agent's, such as desired.ErrNotFound.
type Client struct {
	rpc    culvertv1connect.CulvertClient
	target string
}

// NewClient prepares calls to a daemon; it does not connect.
func NewClient(e Endpoint) (*Client, error) {
	tripper, url, err := e.transport()
	if err != nil {
		return nil, err
	}
	return newClient(tripper, url, cmp.Or(e.Address, e.Socket)), nil
}

// transport says how to call the daemon, and by which URL.
func (e Endpoint) transport() (tripper http.RoundTripper, url string, err error) {
	if e.Address == "" {
		return toSocket(e.Socket), "http://culvert", nil
	}
	host, _, err := net.SplitHostPort(e.Address)
	if err != nil {
		return nil, "", fmt.Errorf("--address %q: give host:port", e.Address)
	}
	transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, ServerName: e.ServerName}}
	if e.CA != "" {
		pem, err := os.ReadFile(e.CA)
		if err != nil {
			return nil, "", err
		}
		transport.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !transport.TLSClientConfig.RootCAs.AppendCertsFromPEM(pem) {
			return nil, "", fmt.Errorf("%s holds no PEM certificate", e.CA)
		}
	}
	scheme := "https"
	if addr, err := netip.ParseAddr(host); e.CA == "" && (host == "localhost" || err == nil && addr.IsLoopback()) {
		scheme = "http"
	}
	tripper = transport
	if e.TokenFile != "" {
		token, err := ReadToken(e.TokenFile)
		if err != nil {
			return nil, "", err
		}
		tripper = bearer{token, transport}
	}
	return tripper, scheme + "://" + e.Address, nil
}

func newClient(t http.RoundTripper, url, target string) *Client {
	c := &Client{target: target}
	c.rpc = culvertv1connect.NewCulvertClient(&http.Client{Transport: t}, url, c.explained())
	return c
}

// toSocket connects to a Unix socket, whatever the URL.
func toSocket(path string) *http.Transport {
	return &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}
}

// explained passes the error of each call through fail.
func (c *Client) explained() connect.ClientOption {
	return connect.WithInterceptors(connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
			response, err := next(ctx, r)
			return response, c.fail(err)
		}
	}))
}

type bearer struct {
	token string
	next  http.RoundTripper
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.next.RoundTrip(r)
}

// fail says what a caller can do about a daemon that cannot be reached, does not answer or ends
// meanwhile.
func (c *Client) fail(err error) error {
	if err == nil {
		return nil
	}
	if _, dialing := errors.AsType[*net.OpError](err); dialing {
		cause := err
		if ce, ok := errors.AsType[*connect.Error](err); ok {
			cause = ce.Unwrap()
		}
		text := strings.TrimPrefix(cause.Error(), "unavailable: ")
		if errors.Is(err, os.ErrPermission) {
			return fmt.Errorf("no permission to use %s: run as root, or as a member of its group", c.target)
		}
		return fmt.Errorf("no daemon at %s: %s (is `culvert run` running? --socket and --address say where)", c.target, text)
	}
	ce, isAnswer := errors.AsType[*connect.Error](err)
	switch {
	case isAnswer && ce.Code() == connect.CodeDeadlineExceeded && !connect.IsWireError(ce):
		return &Error{message: fmt.Sprintf("the daemon at %s does not answer", c.target), is: context.DeadlineExceeded}
	case isAnswer && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)):
		return &Error{message: fmt.Sprintf("the daemon at %s has ended, or closed the connection", c.target), is: io.ErrUnexpectedEOF}
	}
	return fromConnect(err)
}

// Running returns the running configuration.
func (c *Client) Running(ctx context.Context) (*config.Config, error) {
	m, err := c.rpc.GetConfig(ctx, &pb.GetConfigRequest{})
	if err != nil {
		return nil, err
	}
	return configOf(m.GetConfig())
}

// Apply applies a whole configuration; with dryRun it only returns the changes.
func (c *Client) Apply(ctx context.Context, wanted *config.Config, dryRun bool) ([]desired.Change, error) {
	m := &pb.Config{}
	if err := message.Encode(wanted, m); err != nil {
		return nil, err
	}
	return decoded[desired.Change](c.rpc.Apply(ctx, &pb.ApplyRequest{Config: m, DryRun: dryRun}))
}

// Add adds or replaces the resources of fragment.
func (c *Client) Add(ctx context.Context, fragment *config.Config) ([]desired.Change, error) {
	m := &pb.Config{}
	if err := message.Encode(fragment, m); err != nil {
		return nil, err
	}
	return decoded[desired.Change](c.rpc.Add(ctx, &pb.AddRequest{Config: m}))
}

// Delete removes resources that were added through Add.
func (c *Client) Delete(ctx context.Context, refs []desired.Ref) ([]desired.Change, error) {
	request := &pb.DeleteRequest{}
	if err := message.EncodeList(refs, request); err != nil {
		return nil, err
	}
	return decoded[desired.Change](c.rpc.Delete(ctx, request))
}

// Trace calls f for each packet that filter matches until ctx ends, which is no
// error. It calls started, if not nil, when the daemon has accepted the trace.
func (c *Client) Trace(ctx context.Context, filter agent.TraceFilter, started func(), f func(agent.TraceEvent) error) error {
	request := &pb.TraceRequest{}
	if err := message.Encode(&filter, request); err != nil {
		return err
	}
	stream, err := c.rpc.Trace(ctx, request)
	if err != nil {
		return c.fail(err)
	}
	defer stream.Close()
	// The headers come before the first packet does; without a daemon, never.
	if len(stream.ResponseHeader()) > 0 && started != nil {
		started()
	}
	if err := receive[agent.TraceEvent](stream, f); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return nil
	}
	return c.fail(stream.Err())
}

// Explain says what would become of packets that arrived by an interface now.
func (c *Client) Explain(ctx context.Context, name string, frames [][]byte) ([]agent.TraceEvent, error) {
	answer, err := c.rpc.ExplainPackets(ctx, &pb.ExplainPacketsRequest{Interface: name, Frames: frames})
	if err != nil {
		return nil, c.fail(err)
	}
	out := make([]agent.TraceEvent, len(answer.GetPackets()))
	for i, p := range answer.GetPackets() {
		if out[i], err = message.Decode[agent.TraceEvent](p.GetPacket()); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Doctor examines the daemon's machine.
func (c *Client) Doctor(ctx context.Context, interfaces []string) ([]Finding, error) {
	return decoded[Finding](c.rpc.Doctor(ctx, &pb.DoctorRequest{Interfaces: interfaces}))
}

// PodReadiness asks the daemon with this socket whether pods can be added.
func PodReadiness(ctx context.Context, socket string) (pods.Readiness, error) {
	transport := toSocket(socket)
	defer transport.CloseIdleConnections()
	client := culvertv1connect.NewPodsClient(&http.Client{Transport: transport}, "http://culvert", (&Client{target: socket}).explained())
	m, err := client.GetPodReadiness(ctx, &pb.GetPodReadinessRequest{})
	if err != nil {
		return pods.Readiness{}, err
	}
	return message.Decode[pods.Readiness](m)
}

// decoded returns the structs of the list in a response, or the error of its call.
func decoded[T any](response proto.Message, err error) ([]T, error) {
	if err != nil {
		return nil, err
	}
	return message.DecodeList[T](response)
}

// orEmpty is list, or an empty one for nil: JSON has [] for it.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// Status returns the state of the daemon at a glance.
func (c *Client) Status(ctx context.Context) (agent.Status, error) {
	m, err := c.rpc.Status(ctx, &pb.StatusRequest{})
	if err != nil {
		return agent.Status{}, err
	}
	s, err := message.Decode[agent.Status](m)
	s.Interfaces, s.Outcomes = orEmpty(s.Interfaces), orEmpty(s.Outcomes)
	return s, err
}

// Interfaces returns the interfaces, or the one that key names; the other lists
// are alike.
func (c *Client) Interfaces(ctx context.Context, key string) ([]agent.InterfaceStatus, error) {
	return decoded[agent.InterfaceStatus](c.rpc.ListInterfaces(ctx, &pb.ListInterfacesRequest{Key: key}))
}

// Locators returns the locators.
func (c *Client) Locators(ctx context.Context, key string) ([]agent.LocatorStatus, error) {
	return decoded[agent.LocatorStatus](c.rpc.ListLocators(ctx, &pb.ListLocatorsRequest{Key: key}))
}

// SIDs returns the local SIDs.
func (c *Client) SIDs(ctx context.Context, key string) ([]agent.SIDStatus, error) {
	return decoded[agent.SIDStatus](c.rpc.ListSIDs(ctx, &pb.ListSIDsRequest{Key: key}))
}

// Policies returns the SR policies.
func (c *Client) Policies(ctx context.Context, key string) ([]agent.PolicyStatus, error) {
	return decoded[agent.PolicyStatus](c.rpc.ListPolicies(ctx, &pb.ListPoliciesRequest{Key: key}))
}

// Steerings returns the steering entries.
func (c *Client) Steerings(ctx context.Context, key string) ([]agent.SteeringStatus, error) {
	return decoded[agent.SteeringStatus](c.rpc.ListSteering(ctx, &pb.ListSteeringRequest{Key: key}))
}

// Classes returns the traffic classes.
func (c *Client) Classes(ctx context.Context, key string) ([]agent.ClassStatus, error) {
	return decoded[agent.ClassStatus](c.rpc.ListClasses(ctx, &pb.ListClassesRequest{Key: key}))
}

// Nodes returns the other nodes of the cluster, by name.
func (c *Client) Nodes(ctx context.Context, key string) ([]agent.NodeStatus, error) {
	return decoded[agent.NodeStatus](c.rpc.ListNodes(ctx, &pb.ListNodesRequest{Key: key}))
}

// BGPPeers returns the node's BGP sessions, by the peer's address.
func (c *Client) BGPPeers(ctx context.Context, key string) ([]agent.BGPPeerStatus, error) {
	return decoded[agent.BGPPeerStatus](c.rpc.ListBGPPeers(ctx, &pb.ListBGPPeersRequest{Key: key}))
}

// CandidatePaths returns the candidate paths of policies.
func (c *Client) CandidatePaths(ctx context.Context, key string) ([]agent.CandidatePathStatus, error) {
	return decoded[agent.CandidatePathStatus](c.rpc.ListCandidatePaths(ctx, &pb.ListCandidatePathsRequest{Key: key}))
}

// Tunnels returns the GTP-U tunnels.
func (c *Client) Tunnels(ctx context.Context, key string) ([]agent.TunnelStatus, error) {
	return decoded[agent.TunnelStatus](c.rpc.ListTunnels(ctx, &pb.ListTunnelsRequest{Key: key}))
}

// Adjacencies returns the next hops.
func (c *Client) Adjacencies(ctx context.Context, key string) ([]agent.AdjacencyStatus, error) {
	return decoded[agent.AdjacencyStatus](c.rpc.ListAdjacencies(ctx, &pb.ListAdjacenciesRequest{Key: key}))
}

// Outcomes returns how packets' journeys ended, by reason.
func (c *Client) Outcomes(ctx context.Context, key string) ([]agent.Outcome, error) {
	return decoded[agent.Outcome](c.rpc.ListOutcomes(ctx, &pb.ListOutcomesRequest{Key: key}))
}

// NATs returns the NATs of UE pools. A key is a pool, a UE, or a public address and port.
func (c *Client) NATs(ctx context.Context, key string) ([]agent.NATStatus, error) {
	return decoded[agent.NATStatus](c.rpc.ListNATs(ctx, &pb.ListNATsRequest{Key: key}))
}

// Announcements returns the UE prefixes that BGP announces, or would.
func (c *Client) Announcements(ctx context.Context, key string) ([]agent.AnnouncementStatus, error) {
	return decoded[agent.AnnouncementStatus](c.rpc.ListAnnouncements(ctx, &pb.ListAnnouncementsRequest{Key: key}))
}

// Slices returns the slices.
func (c *Client) Slices(ctx context.Context, key string) ([]agent.SliceStatus, error) {
	return decoded[agent.SliceStatus](c.rpc.ListSlices(ctx, &pb.ListSlicesRequest{Key: key}))
}

// Associations returns the PFCP associations, by Node ID.
func (c *Client) Associations(ctx context.Context, key string) ([]agent.AssociationStatus, error) {
	all, err := decoded[agent.AssociationStatus](c.rpc.ListAssociations(ctx, &pb.ListAssociationsRequest{Key: key}))
	for i := range all {
		all[i].Addrs = orEmpty(all[i].Addrs)
	}
	return all, err
}

// Pods returns the pods on the node, by namespace/name.
func (c *Client) Pods(ctx context.Context, key string) ([]pods.Status, error) {
	all, err := decoded[pods.Status](c.rpc.ListPods(ctx, &pb.ListPodsRequest{Key: key}))
	for i := range all {
		all[i].Addresses = orEmpty(all[i].Addresses)
	}
	return all, err
}

// ExplainPolicy says which NetworkPolicies and rules decide.
func (c *Client) ExplainPolicy(ctx context.Context, a isolation.Ask) ([]netpol.Verdict, error) {
	request := &pb.ExplainPolicyRequest{}
	if err := message.Encode(&a, request); err != nil {
		return nil, err
	}
	return decoded[netpol.Verdict](c.rpc.ExplainPolicy(ctx, request))
}

// Sessions returns the sessions that match a filter, and how many match in total.
func (c *Client) Sessions(ctx context.Context, f agent.SessionFilter) (list []agent.SessionStatus, total int, err error) {
	request := &pb.ListSessionsRequest{}
	if err := message.Encode(&f, request); err != nil {
		return nil, 0, err
	}
	m, err := c.rpc.ListSessions(ctx, request)
	list, err = decoded[agent.SessionStatus](m, err)
	return list, int(m.GetTotal()), err
}
