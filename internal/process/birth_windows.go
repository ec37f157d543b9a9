package process

import (
	"fmt"
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/windows"
)

// jobList is PROC_THREAD_ATTRIBUTE_JOB_LIST of winbase.h, for Windows 10 and later.
const jobList = 0x0002000D

// birth describes a process that is in a job from its first instruction, which os.StartProcess
// cannot do. A suspended process that is put into its job and then resumed would be no substitute:
// should this program be killed in between, it would stay there for ever.
type birth struct {
	path      string
	args, env []string
	std       [3]windows.Handle // stdin, stdout, stderr
	others    []windows.Handle  // what is inherited besides
	flags     uint32
	job       windows.Handle
}

// start starts the process. It inherits the handles of the description and no other.
func (b birth) start() (*os.Process, error) {
	path, err := windows.UTF16PtrFromString(b.path)
	if err != nil {
		return nil, err
	}
	line, err := windows.UTF16PtrFromString(windows.ComposeCommandLine(b.args))
	if err != nil {
		return nil, err
	}
	env, err := environmentBlock(b.env)
	if err != nil {
		return nil, err
	}
	handles, err := b.inherited()
	if err != nil {
		return nil, err
	}
	attributes, err := windows.NewProcThreadAttributeList(2)
	if err != nil {
		return nil, err
	}
	defer attributes.Delete()
	err = attributes.Update(windows.PROC_THREAD_ATTRIBUTE_HANDLE_LIST,
		unsafe.Pointer(&handles[0]), uintptr(len(handles))*unsafe.Sizeof(handles[0]))
	if err != nil {
		return nil, fmt.Errorf("passing on handles: %w", err)
	}
	if err := attributes.Update(jobList, unsafe.Pointer(&b.job), unsafe.Sizeof(b.job)); err != nil {
		return nil, fmt.Errorf("naming the job: %w", err)
	}
	startup := windows.StartupInfoEx{ProcThreadAttributeList: attributes.List()}
	startup.Cb = uint32(unsafe.Sizeof(startup))
	startup.Flags = windows.STARTF_USESTDHANDLES
	startup.StdInput, startup.StdOutput, startup.StdErr = b.std[0], b.std[1], b.std[2]
	const flags = windows.CREATE_UNICODE_ENVIRONMENT | windows.EXTENDED_STARTUPINFO_PRESENT
	var created windows.ProcessInformation
	err = windows.CreateProcess(path, line, nil, nil, true, b.flags|flags, &env[0], nil, &startup.StartupInfo, &created)
	if err != nil {
		return nil, &os.PathError{Op: "CreateProcess", Path: b.path, Err: err}
	}
	// As long as this handle is open the pid is not given to another process.
	defer func() { _ = windows.CloseHandle(created.Process) }()
	_ = windows.CloseHandle(created.Thread)
	return os.FindProcess(int(created.ProcessId))
}

// inherited lists each handle once, as the system demands, and makes it inheritable.
func (b birth) inherited() ([]windows.Handle, error) {
	handles := slices.Concat(b.std[:], b.others)
	slices.Sort(handles)
	handles = slices.Compact(handles)
	for _, handle := range handles {
		const inherit = windows.HANDLE_FLAG_INHERIT
		if err := windows.SetHandleInformation(handle, inherit, inherit); err != nil {
			return nil, fmt.Errorf("passing on a handle: %w", err)
		}
	}
	return handles, nil
}

// environmentBlock is how Windows wants an environment: the entries one behind the other, each with
// a NUL behind it, and one more at the end.
func environmentBlock(env []string) ([]uint16, error) {
	var block []uint16
	for _, entry := range env {
		text, err := windows.UTF16FromString(entry)
		if err != nil {
			return nil, fmt.Errorf("environment variable %q: %w", entry, err)
		}
		block = append(block, text...)
	}
	if len(block) == 0 {
		block = append(block, 0)
	}
	return append(block, 0), nil
}
