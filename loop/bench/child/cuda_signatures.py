"""Arguments of the driver's functions that are called, as `cuda.h` declares them."""

import ctypes
from typing import Any

Handle, Address, Size, Flags, Enum = (
    ctypes.c_void_p,
    ctypes.c_uint64,
    ctypes.c_size_t,
    ctypes.c_uint,
    ctypes.c_int,
)
Out = ctypes.POINTER
SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuInit": (Flags,),
    "cuDriverGetVersion": (Out(ctypes.c_int),),
    "cuGetErrorName": (Enum, Out(ctypes.c_char_p)),
    "cuGetErrorString": (Enum, Out(ctypes.c_char_p)),
    "cuDeviceGetCount": (Out(ctypes.c_int),),
    "cuDeviceGet": (Out(ctypes.c_int), ctypes.c_int),
    "cuDeviceGetName": (ctypes.c_char_p, ctypes.c_int, ctypes.c_int),
    "cuDeviceGetUuid_v2": (Handle, ctypes.c_int),
    "cuDeviceGetAttribute": (Out(ctypes.c_int), Enum, ctypes.c_int),
    "cuDeviceTotalMem_v2": (Out(Size), ctypes.c_int),
    "cuDevicePrimaryCtxRetain": (Out(Handle), ctypes.c_int),
    "cuCtxSetCurrent": (Handle,),
    "cuCtxSynchronize": (),
    "cuCtxResetPersistingL2Cache": (),
    "cuCtxSetLimit": (Enum, Size),
    "cuMemGetInfo_v2": (Out(Size), Out(Size)),
    "cuMemAlloc_v2": (Out(Address), Size),
    "cuMemFree_v2": (Address,),
    "cuMemcpyHtoDAsync_v2": (Address, Handle, Size, Handle),
    "cuMemcpyDtoHAsync_v2": (Handle, Address, Size, Handle),
    "cuMemcpyDtoDAsync_v2": (Address, Address, Size, Handle),
    "cuMemsetD8Async": (Address, ctypes.c_ubyte, Size, Handle),
    "cuMemHostAlloc": (Out(Handle), Size, Flags),
    "cuMemFreeHost": (Handle,),
    "cuMemHostGetDevicePointer_v2": (Out(Address), Handle, Flags),
    "cuStreamCreate": (Out(Handle), Flags),
    "cuStreamDestroy_v2": (Handle,),
    "cuStreamSynchronize": (Handle,),
    "cuStreamWaitValue32_v2": (Handle, Address, ctypes.c_uint32, Flags),
    "cuStreamWaitEvent": (Handle, Handle, Flags),
    "cuStreamGetAttribute": (Handle, Enum, Handle),
    "cuStreamSetAttribute": (Handle, Enum, Handle),
    "cuStreamIsCapturing": (Handle, Out(ctypes.c_int)),
    "cuThreadExchangeStreamCaptureMode": (Out(ctypes.c_int),),
    "cuStreamBeginCapture_v2": (Handle, Enum),
    "cuStreamEndCapture": (Handle, Out(Handle)),
    "cuEventCreate": (Out(Handle), Flags),
    "cuEventDestroy_v2": (Handle,),
    "cuEventRecord": (Handle, Handle),
    "cuEventSynchronize": (Handle,),
    "cuEventElapsedTime_v2": (Out(ctypes.c_float), Handle, Handle),
    "cuGraphInstantiateWithFlags": (Out(Handle), Handle, ctypes.c_uint64),
    "cuGraphUpload": (Handle, Handle),
    "cuGraphLaunch": (Handle, Handle),
    "cuGraphDestroy": (Handle,),
    "cuGraphExecDestroy": (Handle,),
    "cuGraphGetNodes": (Handle, Out(Handle), Out(Size)),
    "cuGraphNodeGetType": (Handle, Out(ctypes.c_int)),
    "cuGraphChildGraphNodeGetGraph": (Handle, Out(Handle)),
}
"""Arguments of every function used, by the name that the library exports; each returns a CUresult."""
OLDER = {"cuEventElapsedTime_v2": "cuEventElapsedTime"}
"""The same function, in drivers before CUDA 12.8."""
