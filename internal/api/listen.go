package api

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/culvert-net/culvert/internal/api/culvertv1/culvertv1connect"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/logevent"
	"github.com/culvert-net/culvert/internal/ui"
)

// shutdown is how long requests may take to end when the daemon does.
const shutdown = 5 * time.Second

// Server serves a handler where the configuration says.
type Server struct {
	socket  string
	servers []server
	logger  *slog.Logger
}

type server struct {
	http     *http.Server
	listener net.Listener
}

// Listen opens the Unix socket, and the TCP listener if there is one. Nothing
// is served before Serve; the caller has to call it, or Close.
func Listen(c config.API, handler http.Handler, logger *slog.Logger) (*Server, error) {
	s := &Server{socket: c.Socket, logger: logger}
	if c.Socket != "" {
		l, err := listenUnix(c.Socket, logger)
		if err != nil {
			return nil, err
		}
		s.add(l, handler, nil)
	}
	if c.Listen != "" {
		if err := s.listenTCP(c, handler); err != nil {
			s.Close()
			return nil, err
		}
	}
	return s, nil
}

func (s *Server) add(l net.Listener, handler http.Handler, tlsConfig *tls.Config) {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true) // gRPC on a socket and on loopback
	s.servers = append(s.servers, server{listener: l, http: &http.Server{
		Handler:           handler,
		Protocols:         protocols,
		TLSConfig:         tlsConfig,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		ErrorLog:          slog.NewLogLogger(s.logger.Handler(), slog.LevelDebug),
	}})
}

// listenUnix makes the socket under another name and renames it when its mode
// is right: nobody can connect before. A socket that nobody listens on is what
// a daemon left behind that was killed.
func listenUnix(path string, logger *slog.Logger) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("api.socket: %w", err)
	}
	err := checkStale(path)
	if errors.Is(err, errListens) {
		logger.Info("another daemon has the socket: waiting for it to end", "event", logevent.APISocketBusy, "socket", path, "at_most", patience)
		for until := time.Now().Add(patience); errors.Is(err, errListens) && time.Now().Before(until); err = checkStale(path) {
			time.Sleep(lookPast)
		}
	}
	if err != nil {
		return nil, err
	}
	private, err := os.MkdirTemp(filepath.Dir(path), ".")
	if err != nil {
		return nil, fmt.Errorf("api.socket: %w", err)
	}
	defer os.RemoveAll(private)
	temporary := filepath.Join(private, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: temporary, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("api.socket: %w", err)
	}
	l.SetUnlinkOnClose(false) // it is known by another name then
	err = os.Chmod(temporary, 0o660)
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("api.socket: %w", err), l.Close())
	}
	return l, nil
}

// errListens says that somebody answers on a socket.
var errListens = errors.New("another daemon listens")

// A daemon that was killed has its socket until the kernel has taken it apart.
const (
	patience = 5 * time.Second
	lookPast = 20 * time.Millisecond // time between two looks
)

func checkStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("api.socket: %w", err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("api.socket: %s exists and is not a socket: remove it, or choose another path", path)
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		c.Close()
		return fmt.Errorf("api.socket: %w on %s: stop it, or choose another path", errListens, path)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("api.socket: %w", err)
	}
	return nil
}

// listenTCP refuses what config.Validate refuses too: an API that is open to
// the network must not depend on one check alone.
func (s *Server) listenTCP(c config.API, handler http.Handler) error {
	handler = http.NewCrossOriginProtection().Handler(withoutPods(handler))
	var tlsConfig *tls.Config
	if c.TLSCert != "" {
		cert, err := tls.LoadX509KeyPair(c.TLSCert, c.TLSKey)
		if err != nil {
			return fmt.Errorf("api.tls_cert: %w", err)
		}
		tlsConfig = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	}
	var grants []grant
	for _, t := range []struct {
		field, file string
		may         func(path string) bool
		viewer      bool
	}{
		{"token_file", c.TokenFile, func(string) bool { return true }, false},
		{"policies_token_file", c.PoliciesTokenFile, func(path string) bool { return path == culvertv1connect.CulvertListPoliciesProcedure }, false},
		{"viewer_token_file", c.ViewerTokenFile, func(path string) bool { _, may := viewerMay[path]; return may }, true},
	} {
		if t.file == "" {
			continue
		}
		token, err := ReadToken(t.file)
		if err != nil {
			return fmt.Errorf("api.%s: %w", t.field, err)
		}
		grants = append(grants, grant{sha256.Sum256([]byte(token)), t.may, t.viewer})
	}
	if len(grants) > 0 {
		handler = requireToken(grants, handler)
	}
	l, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("api.listen: %w", err)
	}
	loopback := l.Addr().(*net.TCPAddr).IP.IsLoopback()
	if !loopback && (tlsConfig == nil || len(grants) == 0) {
		return errors.Join(fmt.Errorf("api.listen: %s is beyond loopback: set tls_cert, tls_key, and token_file or policies_token_file", c.Listen), l.Close())
	}
	if c.Page {
		handler = ui.Handler(handler)
	}
	if len(grants) == 0 || c.Page {
		handler = requireHost(handler, hostsOf(tlsConfig))
	}
	s.add(l, handler, tlsConfig)
	return nil
}

// ReadToken reads a bearer token from a file that others cannot read.
func ReadToken(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if info.Mode().Perm()&0o007 != 0 {
		return "", fmt.Errorf("%s is open to every user: chmod o= %s", path, path)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	const shortest = 16
	token := strings.TrimSpace(string(data))
	if len(token) < shortest || strings.ContainsAny(token, " \t\r\n") {
		return "", fmt.Errorf("%s must hold one token of at least %d characters: openssl rand -hex 32", path, shortest)
	}
	return token, nil
}

// grant is what the bearer of a token may call.
type grant struct {
	digest [sha256.Size]byte // of the token
	may    func(path string) bool
	viewer bool // from whom identities are hidden
}

// requireToken compares digests, so that neither content nor length of a
// token shows in the time it takes.
func requireToken(grants []grant, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given, isBearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		have := sha256.Sum256([]byte(given))
		known, may, viewer := false, false, true
		for _, g := range grants {
			if subtle.ConstantTimeCompare(g.digest[:], have[:]) == 1 {
				known = true
				if g.may(r.URL.Path) {
					may, viewer = true, viewer && g.viewer
				}
			}
		}
		switch {
		case !isBearer || !known:
			w.Header().Set("WWW-Authenticate", `Bearer realm="culvert"`)
			http.Error(w, "a bearer token is needed", http.StatusUnauthorized)
		case !may:
			http.Error(w, "this token may only list policies, or look at the page: use that of api.token_file", http.StatusForbidden)
		default:
			if viewer {
				r = r.WithContext(context.WithValue(r.Context(), viewerKey{}, true))
			}
			next.ServeHTTP(w, r)
		}
	})
}

// requireHost refuses requests for other host names: the owner of a web page
// can make a name resolve to an address of ours, and so lead a browser here.
func requireHost(next http.Handler, ours func(host string) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = strings.Trim(r.Host, "[]")
		}
		if !ours(host) {
			http.Error(w, "this host name is not in the certificate: use one that is, or a loopback address", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// hostsOf says which host names are ours: loopback, and those of the certificate.
func hostsOf(c *tls.Config) func(host string) bool {
	return func(host string) bool {
		return isLocal(host) || c != nil && c.Certificates[0].Leaf.VerifyHostname(host) == nil
	}
}

// isLocal says whether a host name is for callers on this machine.
func isLocal(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

// Serve serves until ctx ends, which is no error. Requests see ctx end.
func (s *Server) Serve(ctx context.Context) error {
	defer s.Close()
	group, ctx := errgroup.WithContext(ctx)
	for _, v := range s.servers {
		v.http.BaseContext = func(net.Listener) context.Context { return ctx }
		group.Go(func() error {
			var err error
			if v.http.TLSConfig != nil {
				err = v.http.ServeTLS(v.listener, "", "")
			} else {
				err = v.http.Serve(v.listener)
			}
			if errors.Is(err, http.ErrServerClosed) {
				return nil
			}
			return fmt.Errorf("management API: %w", err)
		})
		group.Go(func() error {
			<-ctx.Done()
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdown)
			defer cancel()
			if err := v.http.Shutdown(last); err != nil {
				return v.http.Close()
			}
			return nil
		})
	}
	return group.Wait()
}

// Close stops listening and removes the socket, if it is still ours. It may be
// called more than once.
func (s *Server) Close() {
	for _, v := range s.servers {
		v.http.Close()
		v.listener.Close()
	}
	if s.socket != "" && checkStale(s.socket) == nil {
		os.Remove(s.socket)
	}
	s.socket = ""
}
