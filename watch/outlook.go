package watch

import "context"

// Outlook is what watching would come to.
type Outlook struct {
	// Directories and Files are how many there are below the paths.
	Directories, Files int
	// Silent names the kind of file system that sends no events of what others
	// change, and SilentPath the first path that is on one; empty if none is.
	Silent, SilentPath string
	// Notes say what would keep it from seeing everything.
	Notes []string
}

// Foresee looks at the paths once, as a Watcher would, and watches nothing.
func Foresee(ctx context.Context, config Config) Outlook {
	t := newTree(config)
	s := t.survey(ctx)
	o := Outlook{Directories: len(s.dirs), Files: len(s.files), Notes: s.notes()}
	if len(s.dirs) > maxDirectories {
		o.Notes = append(o.Notes, s.tooMany().Error())
	}
	o.Silent, o.SilentPath = t.silent()
	return o
}
