package api

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"

	"connectrpc.com/connect"

	"github.com/culvert-net/culvert/internal/agent"
	pb "github.com/culvert-net/culvert/internal/api/culvertv1"
	"github.com/culvert-net/culvert/internal/api/culvertv1/culvertv1connect"
	"github.com/culvert-net/culvert/internal/config"
)

// Endpoint says where a daemon is.
type Endpoint struct {
	Socket string // path of the Unix socket, unless Address is set
	// Address is host:port. Beyond loopback it is spoken to by TLS.
	Address   string
	TokenFile string
	CA        string // PEM file of whom to trust in place of the system's
}

// Client calls a daemon. Its errors are the agent's: config.Errors, or such
// that errors.Is finds agent.ErrNotFound and the like in.
type Client struct {
	rpc    culvertv1connect.CulvertClient
	target string
}

// NewClient prepares calls to a daemon; it does not connect.
func NewClient(e Endpoint) (*Client, error) {
	if e.Address == "" {
		transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", e.Socket)
		}}
		return newClient(transport, "http://culvert", e.Socket), nil
	}
	host, _, err := net.SplitHostPort(e.Address)
	if err != nil {
		return nil, fmt.Errorf("--address %q: give host:port", e.Address)
	}
	transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}}
	if e.CA != "" {
		pem, err := os.ReadFile(e.CA)
		if err != nil {
			return nil, err
		}
		transport.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !transport.TLSClientConfig.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no PEM certificate", e.CA)
		}
	}
	scheme := "https"
	if addr, err := netip.ParseAddr(host); e.CA == "" && (host == "localhost" || err == nil && addr.IsLoopback()) {
		scheme = "http"
	}
	var tripper http.RoundTripper = transport
	if e.TokenFile != "" {
		token, err := ReadToken(e.TokenFile)
		if err != nil {
			return nil, err
		}
		tripper = bearer{token, transport}
	}
	return newClient(tripper, scheme+"://"+e.Address, e.Address), nil
}

func newClient(t http.RoundTripper, url, target string) *Client {
	return &Client{culvertv1connect.NewCulvertClient(&http.Client{Transport: t}, url), target}
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

// fail says what a caller can do about a daemon that cannot be reached.
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
	return fromConnect(err)
}

// Status is the daemon at a glance.
func (c *Client) Status(ctx context.Context) (agent.Status, error) {
	m, err := c.rpc.Status(ctx, &pb.StatusRequest{})
	if err != nil {
		return agent.Status{}, c.fail(err)
	}
	return statusFrom(m)
}

// fetch calls a List method and converts what it returns.
func fetch[Q, R, A, B any](ctx context.Context, c *Client, call func(context.Context, *Q) (*R, error), q *Q, get func(*R) []A, convert func(A) (B, error)) ([]B, error) {
	m, err := call(ctx, q)
	if err != nil {
		return nil, c.fail(err)
	}
	return each(get(m), convert)
}

// Interfaces lists interfaces; with a key, the one of that name. The other
// lists are alike.
func (c *Client) Interfaces(ctx context.Context, key string) ([]agent.InterfaceStatus, error) {
	return fetch(ctx, c, c.rpc.ListInterfaces, &pb.ListInterfacesRequest{Key: key}, (*pb.ListInterfacesResponse).GetInterfaces, interfaceFrom)
}

// Locators lists locators.
func (c *Client) Locators(ctx context.Context, key string) ([]agent.LocatorStatus, error) {
	return fetch(ctx, c, c.rpc.ListLocators, &pb.ListLocatorsRequest{Key: key}, (*pb.ListLocatorsResponse).GetLocators, locatorFrom)
}

// SIDs lists local SIDs.
func (c *Client) SIDs(ctx context.Context, key string) ([]agent.SIDStatus, error) {
	return fetch(ctx, c, c.rpc.ListSIDs, &pb.ListSIDsRequest{Key: key}, (*pb.ListSIDsResponse).GetSids, sidFrom)
}

// Policies lists SR policies.
func (c *Client) Policies(ctx context.Context, key string) ([]agent.PolicyStatus, error) {
	return fetch(ctx, c, c.rpc.ListPolicies, &pb.ListPoliciesRequest{Key: key}, (*pb.ListPoliciesResponse).GetPolicies, policyFrom)
}

// Steerings lists steering entries.
func (c *Client) Steerings(ctx context.Context, key string) ([]agent.SteeringStatus, error) {
	return fetch(ctx, c, c.rpc.ListSteering, &pb.ListSteeringRequest{Key: key}, (*pb.ListSteeringResponse).GetSteering, steeringFrom)
}

// Tunnels lists GTP-U tunnels.
// Nodes are the others of the cluster, or the one that key names.
func (c *Client) Nodes(ctx context.Context, key string) ([]agent.NodeStatus, error) {
	return fetch(ctx, c, c.rpc.ListNodes, &pb.ListNodesRequest{Key: key}, (*pb.ListNodesResponse).GetNodes, nodeFrom)
}

// BGPPeers are the node's BGP sessions, or the one with the peer that key names.
func (c *Client) BGPPeers(ctx context.Context, key string) ([]agent.BGPPeerStatus, error) {
	return fetch(ctx, c, c.rpc.ListBGPPeers, &pb.ListBGPPeersRequest{Key: key}, (*pb.ListBGPPeersResponse).GetPeers, bgpPeerFrom)
}

// CandidatePaths are the candidate paths of policies, or the one that key names.
func (c *Client) CandidatePaths(ctx context.Context, key string) ([]agent.CandidatePathStatus, error) {
	return fetch(ctx, c, c.rpc.ListCandidatePaths, &pb.ListCandidatePathsRequest{Key: key}, (*pb.ListCandidatePathsResponse).GetCandidatePaths, candidatePathFrom)
}

func (c *Client) Tunnels(ctx context.Context, key string) ([]agent.TunnelStatus, error) {
	return fetch(ctx, c, c.rpc.ListTunnels, &pb.ListTunnelsRequest{Key: key}, (*pb.ListTunnelsResponse).GetTunnels, tunnelFrom)
}

// Adjacencies lists next hops.
func (c *Client) Adjacencies(ctx context.Context, key string) ([]agent.AdjacencyStatus, error) {
	return fetch(ctx, c, c.rpc.ListAdjacencies, &pb.ListAdjacenciesRequest{Key: key}, (*pb.ListAdjacenciesResponse).GetAdjacencies, adjacencyFrom)
}

// Outcomes lists how packets' journeys ended.
func (c *Client) Outcomes(ctx context.Context, key string) ([]agent.Outcome, error) {
	return fetch(ctx, c, c.rpc.ListOutcomes, &pb.ListOutcomesRequest{Key: key}, (*pb.ListOutcomesResponse).GetOutcomes, outcomeFrom)
}

// Running is the configuration that runs.
func (c *Client) Running(ctx context.Context) (*config.Config, error) {
	m, err := c.rpc.GetConfig(ctx, &pb.GetConfigRequest{})
	if err != nil {
		return nil, c.fail(err)
	}
	return configOf(m.GetConfig())
}

// Check says what is wrong with a configuration on the daemon's machine.
func (c *Client) Check(ctx context.Context, wanted *config.Config) (config.Errors, error) {
	m, err := toMessage(wanted, &pb.Config{})
	if err != nil {
		return nil, err
	}
	response, err := c.rpc.Check(ctx, &pb.CheckRequest{Config: m})
	if err != nil {
		return nil, c.fail(err)
	}
	var list config.Errors
	for _, p := range response.GetProblems() {
		list = append(list, problemFrom(p))
	}
	return list, nil
}

// Apply makes wanted the configuration that runs.
func (c *Client) Apply(ctx context.Context, wanted *config.Config, dryRun bool) ([]agent.Change, error) {
	m, err := toMessage(wanted, &pb.Config{})
	if err != nil {
		return nil, err
	}
	response, err := c.rpc.Apply(ctx, &pb.ApplyRequest{Config: m, DryRun: dryRun})
	return changesFrom(response.GetChanges()), c.fail(err)
}

// Add adds or replaces the resources of fragment.
func (c *Client) Add(ctx context.Context, fragment *config.Config) ([]agent.Change, error) {
	m, err := toMessage(fragment, &pb.Config{})
	if err != nil {
		return nil, err
	}
	response, err := c.rpc.Add(ctx, &pb.AddRequest{Config: m})
	return changesFrom(response.GetChanges()), c.fail(err)
}

// Delete removes resources that were added through Add.
func (c *Client) Delete(ctx context.Context, refs []agent.Ref) ([]agent.Change, error) {
	request := &pb.DeleteRequest{}
	for _, r := range refs {
		request.Refs = append(request.Refs, &pb.Ref{Kind: string(r.Kind), Key: r.Key})
	}
	response, err := c.rpc.Delete(ctx, request)
	return changesFrom(response.GetChanges()), c.fail(err)
}

// Trace calls f for each packet that filter matches until ctx ends, which is no
// error. started, if not nil, is called when the daemon has taken the trace.
func (c *Client) Trace(ctx context.Context, filter agent.TraceFilter, started func(), f func(agent.TraceEvent) error) error {
	stream, err := c.rpc.Trace(ctx, filterTo(filter))
	if err != nil {
		return c.fail(err)
	}
	defer stream.Close()
	// The headers come before the first packet does; without a daemon, never.
	if len(stream.ResponseHeader()) > 0 && started != nil {
		started()
	}
	for stream.Receive() {
		e, err := eventFrom(stream.Msg())
		if err != nil {
			return err
		}
		if err := f(e); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return c.fail(stream.Err())
}

// Doctor examines the daemon's machine.
func (c *Client) Doctor(ctx context.Context, interfaces []string) ([]Finding, error) {
	response, err := c.rpc.Doctor(ctx, &pb.DoctorRequest{Interfaces: interfaces})
	if err != nil {
		return nil, c.fail(err)
	}
	out := []Finding{}
	for _, f := range response.GetFindings() {
		out = append(out, Finding{Name: f.GetName(), Level: f.GetLevel(), Detail: f.GetDetail(), Fix: f.GetFix(), Command: f.GetCommand()})
	}
	return out, nil
}
