package serve

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tierlimit/tierlimit/internal/regularfile"
	"github.com/tierlimit/tierlimit/serve/internal/config"
)

// configDir returns the directory in which envoyproxy/ratelimit's variables place the configuration files.
func (e *environment) configDir() string {
	return filepath.Join(e.text("RUNTIME_ROOT", "/srv/runtime_data/current"), e.text("RUNTIME_SUBDIRECTORY", ""), e.appDirectory())
}

func (e *environment) appDirectory() string { return e.text("RUNTIME_APPDIRECTORY", "config") }

// configBeside reports whether files beside the directory count too. When envoyproxy/ratelimit watches the root, it
// takes every file of the subdirectory whose relative path, written with dots between its parts, begins with the
// directory's name and a dot.
func (e *environment) configBeside() bool {
	name := e.appDirectory()
	return e.truth("RUNTIME_WATCH_ROOT", true) && e.text("RUNTIME_SUBDIRECTORY", "") != "" && name == filepath.Base(name) && name != "." && name != ".."
}

// Bounds on what is read of a directory, because its links may lead anywhere.
const (
	maxFiles = 10_000
	maxDepth = 16
	maxBytes = 16 << 20 // of a file
)

// readDir reads all files of a directory and of its subdirectories. It follows links, as Kubernetes
// makes them for the files of a ConfigMap. It skips names that begin with "..", which are the targets
// of such links, and links to directories that it reads anyway, such as one to the current of several.
func readDir(dir string, ignoreDotFiles bool) ([]config.File, error) {
	r := reading{dir: dir, root: dir, ignoreDotFiles: ignoreDotFiles}
	err := r.read(dir, 0)
	return r.files, err
}

// readConfig reads the configuration files. The directory may be missing if there are files beside it.
func (s *Settings) readConfig() ([]config.File, error) {
	r := reading{dir: s.ConfigDir, root: s.ConfigDir, ignoreDotFiles: s.IgnoreDotFiles}
	err := r.read(s.ConfigDir, 0)
	if _, statErr := os.Stat(s.ConfigDir); !s.ConfigBeside || err != nil && !errors.Is(statErr, fs.ErrNotExist) {
		return r.files, err
	}
	parent, name := filepath.Split(s.ConfigDir)
	r.root = parent
	entries, _ := os.ReadDir(parent) // an error is ignored: the parent may be unreadable although the directory is not
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), name+".") {
			if err := r.readEntry(filepath.Join(parent, entry.Name()), 0); err != nil {
				return nil, err
			}
		}
	}
	if len(r.files) > 0 {
		return r.files, nil
	}
	return nil, err
}

type reading struct {
	dir            string // is read with its subdirectories
	root           string // the names of files are relative to it
	ignoreDotFiles bool
	files          []config.File
}

func (r *reading) read(dir string, depth int) error {
	entries, err := os.ReadDir(dir) // sorted by name
	if err != nil {
		return err
	}
	if depth > maxDepth {
		return fmt.Errorf("%s: directories are nested more than %d deep", dir, maxDepth)
	}
	for _, entry := range entries {
		name := entry.Name()
		if r.isSkipped(name) {
			continue
		}
		if err := r.readEntry(filepath.Join(dir, name), depth); err != nil {
			return err
		}
	}
	return nil
}

func (r *reading) isSkipped(name string) bool {
	return strings.HasPrefix(name, "..") || r.ignoreDotFiles && strings.HasPrefix(name, ".")
}

// isReadAnyway reports whether a directory is reached by a link, and is read without it, too. To read it twice would
// make its domains duplicates.
func (r *reading) isReadAnyway(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode()&fs.ModeSymlink == 0 {
		return false
	}
	dir, err := realPath(r.dir)
	if err != nil {
		return false
	}
	target, err := realPath(path)
	if err != nil {
		return false
	}
	relative, err := filepath.Rel(dir, target) // begins with ".." outside the directory, which is skipped
	if err != nil {
		return false
	}
	return relative == "." || !slices.ContainsFunc(strings.Split(relative, string(filepath.Separator)), r.isSkipped)
}

// realPath returns an absolute path without links. The directory may be given by a relative path, and its links may be
// absolute.
func realPath(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(path)
}

// readEntry reads a file or directory. Depth is that of the directory that holds it.
func (r *reading) readEntry(path string, depth int) error {
	info, err := os.Stat(path)
	switch {
	case isGone(path, err):
		return nil
	case err != nil:
		return err
	case info.IsDir() && r.isReadAnyway(path):
		return nil
	case info.IsDir():
		return r.read(path, depth+1)
	case !info.Mode().IsRegular():
		return nil
	case len(r.files) == maxFiles:
		return fmt.Errorf("%s: more than %d files", r.root, maxFiles)
	}
	text, err := regularfile.Read(path, maxBytes)
	if isGone(path, err) {
		return nil
	}
	if err != nil {
		return err
	}
	relative, err := filepath.Rel(r.root, path)
	if err != nil {
		return err
	}
	r.files = append(r.files, config.File{Name: relative, Text: text})
	return nil
}

// isGone reports whether a listed file cannot be read because it has been removed since, as happens when a writer
// uses a temporary name first. A dangling link is not gone.
func isGone(path string, err error) bool {
	if !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	_, err = os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
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
