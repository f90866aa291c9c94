# Install the compiler of CUDA 12.9 on a Windows runner.
$ErrorActionPreference = "Stop"

$installer = "cuda_12.9.1_windows_network.exe"
$url = "https://developer.download.nvidia.com/compute/cuda/12.9.1/network_installers/$installer"
$sha256 = "DE45C336AB4E9825018B546357DC9DE5DED9F89C4F5200EF52B8EEAC3B1B4072"

Invoke-WebRequest -Uri $url -OutFile $installer
if ((Get-FileHash $installer -Algorithm SHA256).Hash -ne $sha256) { throw "$installer is not what it was" }
$parts = "nvcc_12.9", "cudart_12.9", "thrust_12.9", "visual_studio_integration_12.9"
Start-Process -Wait -FilePath "./$installer" -ArgumentList (@("-s") + $parts)
& "C:/Program Files/NVIDIA GPU Computing Toolkit/CUDA/v12.9/bin/nvcc.exe" --version
