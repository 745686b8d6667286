// Package ui has the web page: the sources in web, what is made of them in dist, and a handler
// that serves it. The page calls the management API of whoever serves it
// (docs/adr/0030-web-page.md).
package ui

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"mime"
	"net/http"
	"path"
	"strings"
	"time"
)

//go:generate ../../tools/web.sh generate

//go:embed dist
var dist embed.FS

// policy lets a page use what it was served with, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// file is one of the page's.
type file struct {
	data       []byte
	kind, etag string
}

// Handler serves the page, and passes calls of the API on.
func Handler(api http.Handler) http.Handler {
	files := map[string]file{}
	entries, err := dist.ReadDir("dist")
	for _, e := range entries {
		var data []byte
		if data, err = dist.ReadFile("dist/" + e.Name()); err != nil {
			break
		}
		sum := sha256.Sum256(data)
		files["/"+e.Name()] = file{data: data, kind: mime.TypeByExtension(path.Ext(e.Name())), etag: `"` + hex.EncodeToString(sum[:8]) + `"`}
	}
	if err != nil {
		panic(err) // embedded files can be read
	}
	files["/"] = files["/index.html"]
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/culvert.v1.") {
			api.ServeHTTP(w, r)
			return
		}
		if strings.HasPrefix(r.URL.Path, "/local/") { // of `culvert ui`: a daemon knows none of it
			w.WriteHeader(http.StatusNoContent)
			return
		}
		serve(w, r, files)
	})
}

// serve answers with a file and the headers that keep it to itself.
func serve(w http.ResponseWriter, r *http.Request, files map[string]file) {
	h := w.Header()
	for name, value := range map[string]string{
		"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
		"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-cache",
		"Permissions-Policy": "camera=(), geolocation=(), microphone=()",
	} {
		h.Set(name, value)
	}
	f, ok := files[r.URL.Path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "the page can be read only", http.StatusMethodNotAllowed)
		return
	}
	h.Set("Content-Type", f.kind)
	h.Set("ETag", f.etag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.data))
}
