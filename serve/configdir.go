package serve

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tierlimit/tierlimit/internal/regularfile"
	"github.com/tierlimit/tierlimit/serve/internal/config"
)

// configDir is where the original's settings say that the files are.
func (e *environment) configDir() string {
	return filepath.Join(e.text("RUNTIME_ROOT", "/srv/runtime_data/current"), e.text("RUNTIME_SUBDIRECTORY", ""), e.text("RUNTIME_APPDIRECTORY", "config"))
}

// What is read of a directory is bounded: links may lead anywhere.
const (
	mostFiles = 10_000
	mostDepth = 16
	mostBytes = 16 << 20 // of a file
)

// readDir reads all files of a directory, and of those in it. Links are followed, as Kubernetes
// makes them for files of a ConfigMap; what begins with ".." is what they lead to there.
func readDir(dir string, ignoreDotFiles bool) ([]config.File, error) {
	r := reading{root: dir, ignoreDotFiles: ignoreDotFiles}
	err := r.read(dir, 0)
	return r.files, err
}

type reading struct {
	root           string
	ignoreDotFiles bool
	files          []config.File
}

func (r *reading) read(dir string, depth int) error {
	entries, err := os.ReadDir(dir) // sorted by name
	if err != nil {
		return err
	}
	if depth > mostDepth {
		return fmt.Errorf("%s: more than %d directories lie in each other", dir, mostDepth)
	}
	for _, entry := range entries {
		name := entry.Name()
		if strings.HasPrefix(name, "..") || r.ignoreDotFiles && strings.HasPrefix(name, ".") {
			continue
		}
		path := filepath.Join(dir, name)
		info, err := os.Stat(path)
		switch {
		case err != nil:
			return err
		case info.IsDir():
			if err := r.read(path, depth+1); err != nil {
				return err
			}
			continue
		case !info.Mode().IsRegular():
			continue
		case len(r.files) == mostFiles:
			return fmt.Errorf("%s: more than %d files", r.root, mostFiles)
		}
		text, err := regularfile.Read(path, mostBytes)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(r.root, path)
		if err != nil {
			return err
		}
		r.files = append(r.files, config.File{Name: relative, Text: text})
	}
	return nil
}

// same reports whether two readings of a directory are the same.
func same(a, b []config.File) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Name != b[i].Name || !bytes.Equal(a[i].Text, b[i].Text) {
			return false
		}
	}
	return true
}
