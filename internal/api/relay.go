package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"time"

	"connectrpc.com/connect"
)

// greeting is what a relay writes once the daemon's socket has taken its connection. Nothing
// else begins so: what comes after it is the daemon's.
const greeting = "culvert relay 1\n"

// Relay passes what in holds on to the daemon's socket, and what the daemon answers to out. It
// returns when one of the two ends, which is no error, or when ctx does.
func Relay(ctx context.Context, socket string, in io.Reader, out io.Writer) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return (&Client{target: socket}).fail(err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if _, err := io.WriteString(out, greeting); err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(conn, in) // its end is that of the relay, whatever the reason
		conn.Close()
	}()
	if _, err := io.Copy(out, conn); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// RelayLimits bound streams to relays.
type RelayLimits struct {
	Patience time.Duration // until a relay greets
	Idle     time.Duration // a stream without a call is kept so long
	// Silence is how long nothing comes before a ping is sent, and how long its answer may take.
	Silence time.Duration
}

// DefaultRelayLimits are for nodes of a cluster: a node that has died is noticed within half a minute.
var DefaultRelayLimits = RelayLimits{Patience: 15 * time.Second, Idle: time.Minute, Silence: 15 * time.Second}

// nodeName is what Kubernetes accepts as a name of a node.
var nodeName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)

// NewNodeProxy passes the page's calls on to the daemons of a cluster's nodes. The path of such a
// call has /node/NAME in front. start starts a Relay beside a node's daemon and returns the
// stream to it, which carries all calls at once, by HTTP/2.
func (l RelayLimits) NewNodeProxy(start func(ctx context.Context, node string) (net.Conn, error)) http.Handler {
	protocols := &http.Protocols{}
	protocols.SetUnencryptedHTTP2(true)
	tripper := &http.Transport{
		Protocols: protocols, IdleConnTimeout: l.Idle,
		HTTP2: &http.HTTP2Config{SendPingTimeout: l.Silence, PingTimeout: l.Silence},
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			node, _, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			conn, err := l.reach(ctx, node, start)
			if err != nil {
				return nil, unreachable{err}
			}
			return conn, nil
		},
	}
	proxy := passOn(tripper, func(p *httputil.ProxyRequest) {
		p.Out.URL = &url.URL{Scheme: "http", Host: p.In.PathValue("node"), Path: "/" + p.In.PathValue("call")}
		p.Out.Host = "culvert"
	}, answerFailure)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /node/{node}/{call...}", func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !nodeName.MatchString(r.PathValue("node")):
			http.Error(w, "this is no name of a node", http.StatusBadRequest)
		case !slices.Contains(pageCalls, "/"+r.PathValue("call")):
			refuseCall(w)
		default:
			proxy.ServeHTTP(w, r)
		}
	})
	return mux
}

// reach starts a relay and waits for its greeting.
func (l RelayLimits) reach(ctx context.Context, node string, start func(ctx context.Context, node string) (net.Conn, error)) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, l.Patience)
	defer cancel()
	conn, err := start(ctx, node)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	said := make([]byte, len(greeting))
	n, err := io.ReadFull(conn, said)
	switch {
	case !stop():
		err = fmt.Errorf("the agent on %s does not answer within %v", node, l.Patience)
	case err == nil && string(said) == greeting:
		return conn, nil
	case err == nil || n > 0:
		err = fmt.Errorf("the pod on %s answers %q: it has no agent of this version", node, said[:n])
	case errors.Is(err, io.EOF):
		err = fmt.Errorf("the agent on %s ended the stream", node)
	}
	conn.Close()
	return nil, err
}

// unreachable is why there is no stream to a daemon.
type unreachable struct{ error }

func (u unreachable) Unwrap() error { return u.error }

// answerFailure tells the page in words why a call failed.
func answerFailure(w http.ResponseWriter, r *http.Request, err error) {
	code := connect.CodeUnavailable
	if errors.Is(err, fs.ErrPermission) {
		code = connect.CodePermissionDenied
	}
	if _, ok := errors.AsType[unreachable](err); !ok {
		err = fmt.Errorf("the node does not answer any more: %w", err)
	}
	_ = connect.NewErrorWriter().Write(w, r, connect.NewError(code, err)) // the page is gone
}
