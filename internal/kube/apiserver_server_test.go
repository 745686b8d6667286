//go:build apiserver

package kube

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// server is a kube-apiserver with an etcd of its own.
type server struct {
	dir        string
	port, etcd int
	more       []string // arguments of the kube-apiserver
	api        *exec.Cmd
	admin      *rest.Config
	objects    dynamic.Interface
}

func programs(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(cache, "culvert", "cluster", "bin")
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func newServer(t *testing.T, more ...string) *server {
	t.Helper()
	s := &server{dir: t.TempDir(), port: freePort(t), etcd: freePort(t), more: more}
	peer := freePort(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{
		"accounts.key": pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}),
		"tokens.csv":   []byte("root,root,1,system:masters\nnobody,nobody,2\n"),
	} {
		if err := os.WriteFile(filepath.Join(s.dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	at := func(port int) string { return fmt.Sprintf("http://127.0.0.1:%d", port) }
	etcd := s.run(t, "etcd", "--data-dir", filepath.Join(s.dir, "etcd"), "--unsafe-no-fsync",
		"--listen-client-urls", at(s.etcd), "--advertise-client-urls", at(s.etcd),
		"--listen-peer-urls", at(peer), "--initial-advertise-peer-urls", at(peer), "--initial-cluster", "default="+at(peer))
	t.Cleanup(func() { end(etcd) })
	s.admin = &rest.Config{Host: fmt.Sprintf("https://127.0.0.1:%d", s.port), BearerToken: "root", TLSClientConfig: rest.TLSClientConfig{Insecure: true}, QPS: -1}
	if s.objects, err = dynamic.NewForConfig(s.admin); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end(s.api) }) // also if it does not get ready
	s.start(t)
	for _, u := range append(manifestIn(t, manifestFile), manifestIn(t, uninstallFile)...) {
		s.apply(t, u)
	}
	s.waits(t, "SRv6Policies are served", func() error {
		_, err := s.objects.Resource(policyResource).List(t.Context(), metav1.ListOptions{})
		return err
	})
	return s
}

func (s *server) run(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(s.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	c := exec.Command(filepath.Join(programs(t), name), args...)
	c.Stdout, c.Stderr = log, log
	if err := c.Start(); err != nil {
		t.Fatalf("tools/cluster/build.sh all makes it: %v", err)
	}
	return c
}

func end(c *exec.Cmd) {
	_ = c.Process.Kill() // it has ended where this fails
	_ = c.Wait()
}

// start starts the API server, on what etcd has.
func (s *server) start(t *testing.T) {
	t.Helper()
	file := func(name string) string { return filepath.Join(s.dir, name) }
	args := append([]string{"--etcd-servers", fmt.Sprintf("http://127.0.0.1:%d", s.etcd), "--bind-address", "127.0.0.1",
		"--secure-port", fmt.Sprint(s.port), "--cert-dir", file("certs"), "--token-auth-file", file("tokens.csv"), "--authorization-mode", "RBAC",
		"--service-account-issuer", "https://kubernetes.default.svc", "--service-account-signing-key-file", file("accounts.key"),
		"--service-account-key-file", file("accounts.key"), "--service-cluster-ip-range", "10.96.0.0/16", "--allow-privileged"}, s.more...)
	s.api = s.run(t, "kube-apiserver", args...)
	s.waits(t, "the API server is ready", func() error {
		_, err := s.objects.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Get(t.Context(), namespace, metav1.GetOptions{})
		return err
	})
}

// collects starts the garbage collector of Kubernetes.
func (s *server) collects(t *testing.T) {
	t.Helper()
	c := s.run(t, "kube-controller-manager", "--kubeconfig", s.kubeconfig(t, "root"), "--controllers", "garbage-collector-controller", "--leader-elect=false", "--secure-port", "0")
	t.Cleanup(func() { end(c) })
}

func (s *server) waits(t *testing.T, what string, f func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(90 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	log, _ := os.ReadFile(filepath.Join(s.dir, "kube-apiserver.log"))
	t.Fatalf("not within 90 s: %s: %v\n%s", what, err, log[max(0, len(log)-1000):])
}

// resources are the names of the kinds that these tests make.
var resources = map[string]schema.GroupVersionResource{
	"NetworkPolicy": networkPolicyResource, "Node": nodeResource, "ConfigMap": configMapResource, policyKind: policyResource,
	"SRv6TrafficClass": classResource, "SRv6TrafficClassClaim": claimResource, "EndpointSlice": sliceResource,
	"DaemonSet":                        {Group: "apps", Version: "v1", Resource: "daemonsets"},
	"Deployment":                       {Group: "apps", Version: "v1", Resource: "deployments"},
	"PodDisruptionBudget":              {Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"},
	"Namespace":                        {Version: "v1", Resource: "namespaces"},
	"ServiceAccount":                   {Version: "v1", Resource: "serviceaccounts"},
	"Pod":                              {Version: "v1", Resource: "pods"},
	"CustomResourceDefinition":         {Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
	"ClusterRole":                      {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"},
	"ClusterRoleBinding":               {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"},
	"Role":                             {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"},
	"RoleBinding":                      {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"},
	"ValidatingAdmissionPolicy":        {Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicies"},
	"ValidatingAdmissionPolicyBinding": {Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicybindings"},
}

func (s *server) of(u *unstructured.Unstructured) dynamic.ResourceInterface {
	return s.objects.Resource(resources[u.GetKind()]).Namespace(u.GetNamespace())
}

// apply is what kubectl apply does on the server's side.
func (s *server) apply(t *testing.T, u *unstructured.Unstructured) {
	t.Helper()
	if err := s.tryApply(t.Context(), u); err != nil {
		t.Fatalf("apply %s %s: %v", u.GetKind(), u.GetName(), err)
	}
}

func (s *server) tryApply(ctx context.Context, u *unstructured.Unstructured) error {
	_, err := s.of(u).Apply(ctx, u.GetName(), u, metav1.ApplyOptions{FieldManager: "test", Force: true})
	return err
}

func nodeObject(name string, annotation any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"podCIDRs": []any{"10.244.1.0/24", "fd00:10:244:1::/64"}, "podCIDR": "10.244.1.0/24"}}}
	if annotation != nil {
		text, err := json.Marshal(annotation)
		if err != nil {
			panic(err)
		}
		u.SetAnnotations(map[string]string{NodeAnnotation: string(text)})
	}
	return u
}

func listingObject(text string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"policies.yaml": text}}}
	u.SetName(ListingName(me))
	u.SetNamespace(namespace)
	return u
}

func policyObject(name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": policyVersion, "kind": policyKind, "metadata": map[string]any{"name": name}, "spec": spec}}
}

func spec(change func(map[string]any)) map[string]any {
	s := map[string]any{"node": me, "egressNode": "node-2", "traffic": "IPv6",
		"segmentLists": []any{map[string]any{"segments": []any{"fcff:4::1"}}}}
	if change != nil {
		change(s)
	}
	return s
}

// token is one of a service account of the manifest or the chart.
func (s *server) token(t *testing.T, account string, spec map[string]any) string {
	t.Helper()
	request := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}}
	request.SetName(account)
	answer, err := s.objects.Resource(resources["ServiceAccount"]).Namespace(namespace).Create(t.Context(), request, metav1.CreateOptions{}, "token")
	if err != nil {
		t.Fatal(err)
	}
	token, _, _ := unstructured.NestedString(answer.Object, "status", "token")
	return token
}

// agent is a connection as the daemon of a node has it: by a token of the
// manifest's service account that is bound to a pod of that node.
func (s *server) agent(t *testing.T, node, host string) connection {
	t.Helper()
	pod := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": "culvert-" + node, "namespace": namespace},
		"spec":     map[string]any{"serviceAccountName": "culvert", "nodeName": node, "containers": []any{map[string]any{"name": "c", "image": "none"}}}}}
	s.apply(t, pod)
	token := s.token(t, "culvert", map[string]any{"boundObjectRef": map[string]any{"apiVersion": "v1", "kind": "Pod", "name": pod.GetName()}})
	c := &rest.Config{Host: host, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{Insecure: true}, QPS: requestRate, Burst: requestBurst}
	objects, err := dynamic.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	meta, err := metadata.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	return connection{objects, meta, newDialer()}
}

func (s *server) get(t *testing.T, u *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	got, err := s.of(u).Get(t.Context(), u.GetName(), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func want(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, args...)
}
