package doctor

import "io/fs"

// mayWrite trusts the ACL that LocalAppData hands down.
func mayWrite(string) bool { return true }

func isUnsupported(error) bool { return false }

func openToOthers(fs.FileInfo) bool { return false }
