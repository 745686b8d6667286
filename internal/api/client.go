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
	"github.com/culvert-net/culvert/internal/api/message"
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
	m := &pb.Config{}
	if err := message.Encode(wanted, m); err != nil {
		return nil, err
	}
	response, err := c.rpc.Check(ctx, &pb.CheckRequest{Config: m})
	if err != nil {
		return nil, c.fail(err)
	}
	if len(response.GetProblems()) == 0 {
		return nil, nil
	}
	return message.DecodeList[config.Error](response.GetProblems())
}

// Apply makes wanted the configuration that runs.
func (c *Client) Apply(ctx context.Context, wanted *config.Config, dryRun bool) ([]agent.Change, error) {
	m := &pb.Config{}
	if err := message.Encode(wanted, m); err != nil {
		return nil, err
	}
	response, err := c.rpc.Apply(ctx, &pb.ApplyRequest{Config: m, DryRun: dryRun})
	return decoded[agent.Change](c, response.GetChanges(), err)
}

// Add adds or replaces the resources of fragment.
func (c *Client) Add(ctx context.Context, fragment *config.Config) ([]agent.Change, error) {
	m := &pb.Config{}
	if err := message.Encode(fragment, m); err != nil {
		return nil, err
	}
	response, err := c.rpc.Add(ctx, &pb.AddRequest{Config: m})
	return decoded[agent.Change](c, response.GetChanges(), err)
}

// Delete removes resources that were added through Add.
func (c *Client) Delete(ctx context.Context, refs []agent.Ref) ([]agent.Change, error) {
	list, err := message.EncodeList[agent.Ref, pb.Ref](refs)
	if err != nil {
		return nil, err
	}
	response, err := c.rpc.Delete(ctx, &pb.DeleteRequest{Refs: list})
	return decoded[agent.Change](c, response.GetChanges(), err)
}

// Trace calls f for each packet that filter matches until ctx ends, which is no
// error. started, if not nil, is called when the daemon has taken the trace.
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
	for stream.Receive() {
		e, err := message.Decode[agent.TraceEvent](stream.Msg())
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
	return decoded[Finding](c, response.GetFindings(), err)
}
