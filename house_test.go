package culvert_test

import (
	"bytes"
	"go/ast"
	"go/types"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"golang.org/x/tools/go/packages"
)

const (
	mostMethods = 40  // of a type, promoted ones included: a larger type is several types
	mostLines   = 600 // of a file: a longer file is several files
	mostScreen  = 65  // lines of a function: a longer one does not fit on a screen
)

// TestMethodCeiling counts the methods of every named type, also those that it
// has by embedding. What generated code and libraries bring along does not count:
// we cannot split it.
func TestMethodCeiling(t *testing.T) {
	types := 0
	for _, pkg := range everyPackage(t) {
		for name, n := range methodsByType(t, pkg) {
			types++
			if n > mostMethods {
				t.Errorf("%s.%s has %d methods, at most %d are allowed", strings.TrimPrefix(pkg.PkgPath, module), name, n, mostMethods)
			}
		}
	}
	if types < 500 {
		t.Errorf("counted %d types: the module has many more", types)
	}
}

// TestFunctionCeiling looks at the functions that are written by hand, without tests.
func TestFunctionCeiling(t *testing.T) {
	functions := 0
	for _, pkg := range everyPackage(t) {
		for _, file := range pkg.Syntax {
			if ast.IsGenerated(file) {
				continue
			}
			for _, decl := range file.Decls {
				f, ok := decl.(*ast.FuncDecl)
				if !ok {
					continue
				}
				functions++
				first, last := pkg.Fset.Position(f.Pos()), pkg.Fset.Position(f.End())
				if n := last.Line - first.Line + 1; n > mostScreen {
					t.Errorf("%s: %s has %d lines, at most %d are allowed", first, f.Name.Name, n, mostScreen)
				}
			}
		}
	}
	if functions < 3000 {
		t.Errorf("looked at %d functions: the module has many more", functions)
	}
}

func everyPackage(t *testing.T) []*packages.Package {
	t.Helper()
	loaded, err := loadPackages()
	if err != nil {
		t.Fatal(err)
	}
	for _, pkg := range loaded {
		for _, e := range pkg.Errors {
			t.Fatalf("%s: %v", pkg.PkgPath, e)
		}
	}
	return loaded
}

var loadPackages = sync.OnceValues(func() ([]*packages.Package, error) {
	return packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo | packages.NeedImports,
	}, "./...")
})

// methodsByType counts the methods of a package's types that are written by hand
// in this module.
func methodsByType(t *testing.T, pkg *packages.Package) map[string]int {
	counts := map[string]int{}
	for _, name := range pkg.Types.Scope().Names() {
		of, ok := pkg.Types.Scope().Lookup(name).(*types.TypeName)
		if !ok || of.IsAlias() {
			continue
		}
		receiver := of.Type()
		if !types.IsInterface(receiver) {
			receiver = types.NewPointer(receiver)
		}
		set := types.NewMethodSet(receiver)
		counts[name] = 0
		for i := range set.Len() {
			method := set.At(i).Obj()
			ours := method.Pkg() != nil && strings.HasPrefix(method.Pkg().Path()+"/", module)
			if ours && !isGenerated(t, pkg.Fset.Position(method.Pos()).Filename) {
				counts[name]++
			}
		}
	}
	return counts
}

// TestFileCeiling looks at the Go and C files that are written by hand.
func TestFileCeiling(t *testing.T) {
	files := 0
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (path == ".git" || path == "bin" || path == ".cache") {
			return fs.SkipDir
		}
		if entry.IsDir() || !regexp.MustCompile(`\.(go|c|h)$`).MatchString(path) || isGenerated(t, path) {
			return nil
		}
		files++
		if n := bytes.Count(read(t, path), []byte("\n")); n > mostLines {
			t.Errorf("%s has %d lines, at most %d are allowed", path, n, mostLines)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 500 {
		t.Errorf("looked at %d files: the module has many more", files)
	}
}

var generatedMark = regexp.MustCompile(`(?m)^(// Code generated .* DO NOT EDIT\.|/\* Generated .* Do not edit\.)`)

func isGenerated(t *testing.T, path string) bool {
	t.Helper()
	return generatedMark.Match(read(t, path))
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}
